"""The names of a package, each imported where it is first used (PEP 562)."""

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any


def lazy_names(package: str, *paths: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package; `paths`: words, a module below it and its name each."""
    modules = {name: module for module, _, name in (path.rpartition(".") for path in " ".join(paths).split())}

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return get, lambda: [*modules]


def callable_module(name: str, function: str) -> None:
    """Have a module be called as a function, by its import path: Python names a submodule before its package does."""

    class CallableModule(ModuleType):
        def __call__(self, *arguments: Any, **keywords: Any) -> Any:
            module, _, attribute = function.rpartition(".")
            return getattr(import_module(module), attribute)(*arguments, **keywords)

    sys.modules[name].__class__ = CallableModule
