"""`python -m lockstep.check`: whether N ranks compute what one does, for a module and its data; nothing imports it.

`lockstep.check([...])` does the same, by the module itself.
"""

from lockstep.base.lazy import callable_module

callable_module(__name__, "lockstep.check.command.check")
