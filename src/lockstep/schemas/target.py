"""User code, named by its import path: `_target_: package.module.Name` and the arguments to call it with.

A plan holds the name and the arguments; they are imported and called on ranks, and before in a child process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, get_type_hints

from lockstep.schemas.coerce import coerce_value

KEY, ARGS, PARTIAL = "_target_", "_args_", "_partial_"
"""Hydra's names: what to call, positional arguments, and whether to return a functools.partial instead of a call."""


@dataclass(frozen=True)
class Target:
    """A call of user code.

    name: the last part of the path, for results and tables.
    arguments: keyword arguments, plain values; one that has a `_target_` itself is called first.
    key: of the target on the command line: `model`, `data.dataset`, `logger.NAME`.
    marks: keys of which one tells that a group of keys names user code.
    settings: keys beside the target that are options of Lockstep, and their fields.
    """

    name: str
    _target_: str
    arguments: dict[str, Any]
    key: str
    marks: ClassVar[tuple[str, ...]] = (KEY,)
    settings: ClassVar[dict[str, str]] = {}

    @classmethod
    def from_values(cls, key: str, values: Mapping[str, Any]) -> Self:
        """Return the target that a group of keys names, as in a YAML file."""
        arguments = {name: value for name, value in values.items() if name not in (KEY, *cls.settings)}
        name = str(values[KEY]).rpartition(".")[2]
        return cls(name, values[KEY], arguments, key, **cls.coerce_settings(key, values))

    @classmethod
    def coerce_settings(cls, key: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of the settings among the values."""
        hints = get_type_hints(cls, include_extras=True)
        present = {name: field for name, field in cls.settings.items() if name in values}
        return {field: coerce_value(hints[field], f"{key}.{name}", values[name]) for name, field in present.items()}

    @property
    def call(self) -> dict[str, Any]:
        """Return the path and the arguments as in a YAML file."""
        return {KEY: self._target_, **self.arguments}


class BuiltIn:
    """Code of Lockstep, named by its import path like user code. The fields are its arguments, except for `name`."""

    path: ClassVar[str]

    @property
    def call(self) -> dict[str, Any]:
        arguments = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}  # type: ignore[arg-type]
        return {KEY: self.path, **arguments}
