"""The strategies: how ranks start, how a batch is split, what wraps the net, which runs are comparable.

A module in this folder that defines a subclass of `Strategy` with a literal `name` is an option of the group
`strategy`. No other code depends on a strategy's name: what differs between strategies is a method of `Strategy`. The
folder can be imported without torch; methods that need torch import it.
"""
