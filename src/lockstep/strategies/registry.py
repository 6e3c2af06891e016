"""All strategies, for whoever chooses one by its name; a rank imports only the one of its plan."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import get_args, get_type_hints

from lockstep import strategies
from lockstep.strategies.strategy import Strategy


def _strategies() -> Iterator[tuple[str, type[Strategy]]]:
    for file in iter_modules(strategies.__path__):
        module = import_module(f"{strategies.__name__}.{file.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Strategy) and value.__module__ == module.__name__:
                yield from ((name, value) for name in get_args(get_type_hints(value)["name"]))


STRATEGIES: dict[str, type[Strategy]] = dict(_strategies())  # the strategies by name, in the order of their files
