"""Objects named by an import path, as Hydra's `instantiate` takes them: `_target_: package.module.Name`, arguments.

A plan holds the path and the arguments; they are imported and called on ranks, and before in a child process.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

KEY, ARGS, PARTIAL, RECURSIVE, CONVERT = "_target_", "_args_", "_partial_", "_recursive_", "_convert_"
"""Hydra's names: what to call, positional arguments, whether to return a functools.partial instead of a call, whether
to call the targets among the arguments, and whether mappings and lists become plain ones.
"""
SPECIAL = (KEY, ARGS, PARTIAL, RECURSIVE, CONVERT)


@dataclass(frozen=True)
class Target:
    """A call.

    name: the last part of the path, for results and tables.
    key: of the target on the command line: `model`, `data`, `logger.NAME`.
    call: the path and the arguments, as in a YAML file; one that has a `_target_` itself is called first.
    """

    name: str
    key: str
    call: dict[str, Any]

    @classmethod
    def from_values(cls, key: str, values: Mapping[str, Any]) -> Self:
        """Return the target that a group of keys names, as in a YAML file."""
        return cls(str(values[KEY]).rpartition(".")[2], key, {**values})

    @property
    def path(self) -> str:
        return str(self.call[KEY])

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments, without Hydra's own keys."""
        return {name: value for name, value in self.call.items() if name not in SPECIAL}
