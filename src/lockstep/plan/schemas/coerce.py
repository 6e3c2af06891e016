"""Convert values of a configuration to the types and constraints that a dataclass declares."""

import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from lockstep.base.config_error import ConfigError, as_typed, config_error, is_number, nearest, option_error, require
from lockstep.plan.schemas.former import synonym

TYPES: dict[type, tuple[str, str]] = {
    **{int: ("a whole number below 2^63", "1"), float: ("a number below 1e300", "0.1")},
    **{bool: ("true or false", "true"), str: ("text", "TEXT")},
}
"""What to call the plain types, and an example."""


def coerce(cls: Any, key: str, values: object) -> Any:
    """Return an instance of the dataclass `cls` from the options of a key."""
    hints, prefix = get_type_hints(cls, include_extras=True), f"{key}." if key else ""
    names = [field.name for field in fields(cls)]
    if not isinstance(values, Mapping):
        hint = synonym(f"{key}={as_typed(values)}") or f"{prefix}{names[0]}=VALUE, for example"
        raise config_error(key, values, "it is a group of keys", hint)
    check_keys(prefix, values, names)
    return cls(**{name: coerce_value(hints[name], prefix + name, values[name]) for name in names})


def check_keys(prefix: str, values: Mapping[str, Any], names: Sequence[str]) -> None:
    for key, value in values.items():
        if key not in names:
            raise unknown_key(prefix + key, value, [prefix + name for name in names])
    for name in names:
        if name not in values:
            raise ConfigError(f"{prefix}{name} is missing; write {prefix}{name}=VALUE.")


def unknown_key(key: str, value: object, candidates: Collection[str]) -> ConfigError:
    """Return the error of a missing key, with the one probably meant: in its group, or of the same name elsewhere."""
    reason, (prefix, _, name) = "there is no such key", key.rpartition(".")
    siblings = {each.rpartition(".")[2]: each for each in candidates if each.rpartition(".")[0] == prefix}
    namesakes = [each for each in candidates if each.rpartition(".")[2] == name]
    near = next(iter(namesakes), siblings.get(nearest(name, siblings) or ""))
    if near is None:
        return config_error(key, value, reason, "one that --help lists")
    return config_error(key, value, f"{reason} (did you mean {near}?)", f"{near}=VALUE")


def coerce_value(kind: Any, key: str, value: Any, example: str | None = None) -> Any:
    """Return `value` as the type `kind`, e.g. 1e6, a float in YAML, as an int.

    A value that has one of the types of a union keeps it. Types that are not candidates here accept any value.
    """
    origin, options = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return coerce(kind, key, value)
    if origin is Annotated:
        value = coerce_value(options[0], key, value, options[1].example)
        for constraint in options[1:]:
            require(constraint.is_valid(value), key, value, constraint.reason, f"{key}={constraint.example}")
        return value
    if origin is Literal:
        if value not in options:
            raise option_error(key, value, "it is not one of the possible values", map(as_typed, options))
        return options[options.index(value)]
    if origin in (Union, types.UnionType):
        return coerce_value(type(value) if type(value) in options else options[0], key, value)
    if origin is tuple:  # of texts alone
        values = [value] if isinstance(value, str) else value
        require(isinstance(values, list | tuple), key, value, "it is a list", f"{key}=[a,b]")
        return tuple(coerce_value(options[0], key, item) for item in values)
    if origin is Mapping:
        require(isinstance(value, Mapping), key, value, "it is a mapping", f"'{key}={{NAME: VALUE}}'")
    if kind not in TYPES:
        return value
    name, usual = TYPES[kind]
    if kind in (int, float):
        fits = is_number(value) and abs(value) < (2**63 if kind is int else 1e300) and kind(value) == value
    else:
        fits = isinstance(value, kind) or (kind is str and is_number(value))
    require(fits, key, value, f"it takes {name}", f"{key}={example or usual}")
    return kind(value)
