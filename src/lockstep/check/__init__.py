"""`python -m lockstep.check`: whether N ranks compute what one does, for a module and its data; nothing imports it.

`lockstep.check([...])` does the same. Python gives a package's submodule its name, so the module itself is callable.
"""

import sys
from types import ModuleType
from typing import Any


class CallableModule(ModuleType):
    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        from lockstep.check.command import check

        return check(*arguments, **keywords)


sys.modules[__name__].__class__ = CallableModule
