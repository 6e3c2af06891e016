"""The strategies, one file each: how ranks start, who shares a batch, what wraps the net, what it is comparable with.

A module here that defines a subclass of `Strategy` with a literal `name` is an option of the group `strategy`. Nobody
else asks for a name: what differs from strategy to strategy is a question to `Strategy`. No torch here: a method that
needs it imports it.
"""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import get_args, get_type_hints

from lockstep.strategies.strategy import Strategy, Wrapped, plain_net

__all__ = ["STRATEGIES", "Strategy", "Wrapped", "plain_net"]


def _found() -> Iterator[tuple[str, type[Strategy]]]:
    for found in iter_modules(__path__):
        module = import_module(f"{__name__}.{found.name}")
        for own in vars(module).values():
            if isinstance(own, type) and issubclass(own, Strategy) and own.__module__ == module.__name__:
                yield from ((name, own) for name in get_args(get_type_hints(own)["name"]))


STRATEGIES: dict[str, type[Strategy]] = dict(_found())
"""By name, in the order of their files."""
