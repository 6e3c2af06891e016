"""User code, named by its import path: `_target_: package.module.Name` and the arguments to call it with.

A plan holds the name and the arguments; they are imported and called on ranks, and before in a child process.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, get_type_hints

from lockstep.config_error import as_typed, config_error, nearest
from lockstep.progress import notice
from lockstep.schemas.coerce import coerce_value, unknown_key

KEY, ARGS, PARTIAL = "_target_", "_args_", "_partial_"
"""Hydra's names: what to call, positional arguments, and whether to return a functools.partial instead of a call."""
RESERVED = (KEY, ARGS, PARTIAL)

SETTINGS = "lockstep"
"""The key of the options that Lockstep reads itself. All others are arguments of the target."""

FORMER_SETTINGS = {
    **{"_split_": "split", "_loader_": "loader", "_classes_": "num_classes"},
    **{"_inputs_": "input_key", "_targets_": "target_key"},
    **{"_interval_": "interval", "_monitor_": "monitor", "_decay_bias_and_norm_": "decay_bias_and_norm"},
}
"""Former names of settings, which are still accepted."""


@dataclass(frozen=True)
class Target:
    """A call of user code.

    name: the last part of the path, for results and tables.
    arguments: keyword arguments, plain values; one that has a `_target_` itself is called first.
    settings: the fields that are read from the key `lockstep`.
    """

    name: str
    _target_: str
    arguments: dict[str, Any]
    settings: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def is_named_in(values: Mapping[str, Any]) -> bool:
        """Whether a group of keys names user code."""
        return KEY in values

    @classmethod
    def from_values(cls, key: str, values: Mapping[str, Any]) -> Self:
        """Return the target that a group of keys names, as in a YAML file.

        Raises:
            ConfigError: a setting is unknown or invalid, or a key is misspelled.
        """
        require_spelling(key, values, former={old for old, new in FORMER_SETTINGS.items() if new in cls.settings})
        settings = cls._settings(key, values)
        arguments = {name: value for name, value in values.items() if name not in (KEY, SETTINGS, *FORMER_SETTINGS)}
        return cls(str(values[KEY]).rpartition(".")[2], values[KEY], arguments, **settings)

    @classmethod
    def _settings(cls, key: str, values: Mapping[str, Any]) -> dict[str, Any]:
        given = values.get(SETTINGS) or {}
        if not isinstance(given, Mapping):
            raise config_error(f"{key}.{SETTINGS}", given, "it is a group of keys", f"{key}.{SETTINGS}.KEY=VALUE")
        former = {new: (old, values[old]) for old, new in FORMER_SETTINGS.items() if old in values}
        for new, (old, _) in former.items():
            notice(f"{key}.{old} is now {key}.{SETTINGS}.{new}")
        given = {new: value for new, (_, value) in former.items()} | {**given}
        prefix, hints = f"{key}.{SETTINGS}.", get_type_hints(cls, include_extras=True)
        for name, value in given.items():
            if name not in cls.settings:
                raise unknown_key(prefix + name, value, [prefix + known for known in cls.settings])
        return {name: coerce_value(hints[name], prefix + name, value) for name, value in given.items()}

    @property
    def call(self) -> dict[str, Any]:
        """Return the path and the arguments as in a YAML file."""
        return {KEY: self._target_, **self.arguments}


class BuiltIn:
    """Code of Lockstep, named by its import path like user code. The fields are its arguments, except for `name`."""

    path: ClassVar[str]

    @property
    def call(self) -> dict[str, Any]:
        """Return the path and the arguments as in a YAML file."""
        arguments = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}  # type: ignore[arg-type]
        return {KEY: self.path, **arguments}


def nested(key: str, value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the targets among a target's arguments and itself with their keys, the innermost first."""
    if isinstance(value, Mapping):
        for name, argument in value.items():
            yield from nested(f"{key}.{name}", argument)
        if KEY in value:
            yield key, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from nested(f"{key}[{index}]", item)


def require_spelling(key: str, values: Any, former: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """Raise a ConfigError for a misspelled key such as `_traget_`: it would be passed on as an argument.

    Args:
        former: names of settings that the outermost mapping may have.
    """
    if isinstance(values, list):
        values = dict(enumerate(values))
    for name, value in values.items() if isinstance(values, Mapping) else ():
        if isinstance(name, str) and name[0] == name[-1] == "_" and name not in (*RESERVED, *former):
            near = nearest(name, RESERVED) or KEY
            reason = f"there is no such key (did you mean {near}?)"
            raise config_error(f"{key}.{name}", value, reason, f"{key}.{near}={as_typed(value)}")
        require_spelling(f"{key}.{name}", value)
