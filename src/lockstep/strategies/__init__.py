"""The strategies: how ranks start, how a batch is split, what wraps the net, which runs are comparable.

A module in this folder that defines a subclass of `Strategy` with a literal `name` is an option of the group
`strategy`. No other code depends on a strategy's name: what differs between strategies is a method of `Strategy`. The
folder can be imported without torch; methods that need torch import it.
"""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import get_args, get_type_hints

from lockstep.strategies.strategy import Strategy


def _strategies() -> Iterator[tuple[str, type[Strategy]]]:
    for file in iter_modules(__path__):
        module = import_module(f"{__name__}.{file.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Strategy) and value.__module__ == module.__name__:
                yield from ((name, value) for name in get_args(get_type_hints(value)["name"]))


STRATEGIES: dict[str, type[Strategy]] = dict(_strategies())  # the strategies by name, in the order of their files
