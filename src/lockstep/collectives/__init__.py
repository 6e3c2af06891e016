"""torch.distributed from the ground up: `python -m lockstep.collectives` shows every primitive at work on real ranks.

Read calls.py first, how each primitive is called, beside primitives.py: an entry each, with what it does and costs.
theory.py says what every rank must hold afterwards, in plain Python. ranks.py makes the calls, judge.py holds what came
against the theory, and table.py shows both. bench.py measures time over size, fit.py draws the line t = α + n·β through
it. partition.py shows which rank gets which samples; mistakes.py what you read when a call is wrong.
"""
