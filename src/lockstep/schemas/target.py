"""Code of the user's own, named by its import path: `_target_: package.module.Name` and the arguments to call it with.

A plan holds the name and the arguments alone. Nothing is imported here: a rank does that, and before any rank starts a
process of its own (`lockstep.targets`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from lockstep.config_error import as_typed, config_error, nearest

KEY, ARGS, PARTIAL = "_target_", "_args_", "_partial_"
"""Hydra's names: what to call, arguments by position, and whether to call it later with more."""
RESERVED = (KEY, ARGS, PARTIAL)


@dataclass(frozen=True)
class Target:
    """`name` is what results and tables call it: the last part of the path.

    arguments: by keyword, plain values; one that has a `_target_` itself is called first.
    """

    name: str
    _target_: str
    arguments: dict[str, Any]

    @staticmethod
    def named_in(values: Mapping[str, Any]) -> bool:
        """Whether a group of keys names code of the user's own."""
        return KEY in values

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a target, from a group of keys as it stands in a YAML file."""
        path = values[KEY]
        arguments = {key: value for key, value in values.items() if key != KEY}
        return {"name": str(path).rpartition(".")[2], KEY: path, "arguments": arguments}

    @property
    def call(self) -> dict[str, Any]:
        """The target with its arguments, as it stood in the YAML file."""
        return {KEY: self._target_, **self.arguments}


class BuiltIn:
    """Code that comes with Lockstep, named by its import path as the user's own is.

    What it takes is known before it is imported: the fields are its arguments, but for `name`.
    """

    path: ClassVar[str]

    @property
    def call(self) -> dict[str, Any]:
        """The target with its arguments, as it stands in the YAML file."""
        arguments = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}  # type: ignore[arg-type]
        return {KEY: self.path, **arguments}


@dataclass(frozen=True)
class OneOfSeveral(Target):
    """Of a group that takes several. `key`: where it stands on the command line."""

    key: str


def nested(key: str, value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The targets among a target's arguments, with their keys, the innermost first."""
    if isinstance(value, Mapping):
        for name, own in value.items():
            yield from nested(f"{key}.{name}", own)
        if KEY in value:
            yield key, value
    elif isinstance(value, list):
        for index, own in enumerate(value):
            yield from nested(f"{key}[{index}]", own)


def require_spelling(key: str, values: Any, own: Iterable[str] = ()) -> None:
    """Refuse a key such as `_traget_`, wherever among the values: it would be an argument, or nothing at all.

    Args:
        own: such names beside Hydra's, that the outermost keys may have.
    """
    for name, value in values.items() if isinstance(values, Mapping) else ():
        if isinstance(name, str) and name[0] == name[-1] == "_" and name not in (*RESERVED, *own):
            near = nearest(name, [*RESERVED, *own]) or KEY
            reason = f"there is no such key (did you mean {near}?)"
            raise config_error(f"{key}.{name}", value, reason, f"{key}.{near}={as_typed(value)}")
        require_spelling(f"{key}.{name}", value)
    for index, value in enumerate(values if isinstance(values, list) else ()):
        require_spelling(f"{key}[{index}]", value)
