"""The strategies: how ranks start, how a batch is split, what wraps the module, which runs are comparable.

A file NAME.py in this folder, with a subclass of `Strategy` whose `name` is that literal, is an option of the group
`strategy`; it is imported when the option is chosen. No other code depends on a strategy's name: what differs between
strategies is a method of `Strategy`. Files can be imported without torch; methods that need torch import it.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Literal, get_args, get_type_hints

from lockstep.strategies.strategy import Strategy


class _Strategies(Mapping[str, type[Strategy]]):
    def __init__(self) -> None:
        files = {file.name: file.name for file in iter_modules(__path__) if not file.ispkg and file.name != "strategy"}
        self.files = dict(sorted({**files, "ddp_spawn": "ddp"}.items()))

    def __getitem__(self, name: str) -> type[Strategy]:
        classes = vars(import_module(f"{__name__}.{self.files[name]}")).values()
        strategies = (kind for kind in classes if isinstance(kind, type) and issubclass(kind, Strategy))
        return next(kind for kind in strategies if name in get_args(get_type_hints(kind)["name"]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


STRATEGIES = _Strategies()  # the strategies by name
StrategyName = Literal[
    "ddp",
    "ddp_spawn",
    "dp",
    "fsdp",
    "mesh",
    "model_parallel",
    "pipeline",
    "single",
    "tensor_parallel",
    "virtual",
    "zero1",
]  # for editors
