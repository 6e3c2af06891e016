"""Values from a configuration as the types that a dataclass declares; what does not fit is refused by its key."""

import math
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from difflib import SequenceMatcher, get_close_matches
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from lockstep.config_error import ConfigError, as_typed, config_error, is_number, option_error, require, typed_command

T = TypeVar("T")


def coerce(cls: type[T], prefix: str, values: Mapping[str, Any]) -> T:
    """An instance of the dataclass `cls`: each value of its field's type, none missing, none unknown.

    Nobody types the fields that `cls.inferred` lists.
    """
    hints = get_type_hints(cls)
    inferred = getattr(cls, "inferred", ())
    names = [field.name for field in fields(cls) if field.name not in inferred]  # type: ignore[arg-type]
    check_keys(prefix, values, names)
    return cls(**{name: coerce_value(hints[name], prefix + name, values[name]) for name in names})


def from_dict(cls: type[T], values: Mapping[str, Any]) -> T:
    """The dataclass that `asdict` made these values of, on their way through JSON perhaps."""
    hints = get_type_hints(cls)
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    return cls(**{name: _value_from_dict(hints[name], name, values[name]) for name in names})


def _value_from_dict(kind: Any, key: str, value: Any) -> Any:
    """A union or a base class: its members are distinguished by their fields' names, and by the value's `name`."""
    options = get_args(kind) or (kind, *_subclasses(kind))
    if get_origin(kind) is dict:
        return value
    if isinstance(value, Mapping):
        return from_dict(next(option for option in options if _fits(option, value)), value)
    if get_origin(kind) in (list, tuple):
        return get_origin(kind)(_value_from_dict(options[0], key, one) for one in value)
    return coerce_value(kind, key, value)


def _subclasses(kind: Any) -> Iterator[type[Any]]:
    below: list[type] = kind.__subclasses__() if isinstance(kind, type) else []
    for own in below:
        yield from (own, *_subclasses(own))


def _fits(option: Any, values: Mapping[str, Any]) -> bool:
    if not is_dataclass(option) or values.keys() != {field.name for field in fields(option)}:
        return False
    names = get_args(get_type_hints(option).get("name"))
    return not names or values["name"] in names


def check_keys(prefix: str, values: Mapping[str, Any], names: list[str]) -> None:
    """Refuse a key that is not among the names, and a name that has no key."""
    for key, value in values.items():
        if key not in names:
            raise unknown_key(prefix + key, value, [prefix + name for name in names])
    for name in names:
        if name not in values:
            raise ConfigError(f"{prefix}{name} is missing; write {prefix}{name}=VALUE.")


def unknown_key(key: str, value: object, known: list[str], command: str | None = None) -> ConfigError:
    """The refusal of a key that does not exist: what it is here, or the nearest that does where one is spelt alike."""
    if command is None:
        from lockstep.schemas.synonyms import synonym

        if elsewhere := synonym(key, value):
            return elsewhere
    leaf, close = _leaf(key), get_close_matches(key, known, n=5, cutoff=0.8)
    alike = [name for name in close if SequenceMatcher(None, leaf, _leaf(name)).ratio() >= 0.7]
    near = next((name for name in known if _leaf(name) == leaf), alike[0] if alike else None)
    if near is None:
        return config_error(key, value, "there is no such key", f"one that {command or typed_command()} --help lists")
    return config_error(key, value, f"there is no such key (did you mean {near}?)", f"{near}={as_typed(value)}")


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


WORDS = {int: ("a whole number", "1"), float: ("a number", "0.1"), bool: ("true or false", "true"), str: ("text", "a")}
"""What a value of a plain type is called, and an example."""


def coerce_value(kind: Any, key: str, value: Any) -> Any:
    """Return `value` as a `kind`; whole floats pass as ints, as 1e6 is one in YAML.

    Of an int or a float, or an int or a truth value, each stays as it is written: 1 is one, and 1.0 or true is all.
    """
    options = get_args(kind)
    if set(options) in ({int, float}, {bool, int}):
        return coerce_value(type(value) if type(value) in options else int, key, value)
    if get_origin(kind) in (Union, types.UnionType):
        if value is None and type(None) in options:
            return None
        kind = next(option for option in options if option is not type(None))
        # a union of choices is typed before
        return value if len(options) > 2 or kind not in WORDS else coerce_value(kind, key, value)
    if get_origin(kind) is Literal:
        if value not in options:
            raise option_error(key, value, "it is none of the possible values", options)
        return value
    if get_origin(kind) is tuple:
        require(isinstance(value, list), key, value, "it is a list", f"{key}=[128,64], say")
        return tuple(coerce_value(options[0], key, item) for item in value)
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if kind in (float, str) and is_number(value) and not isinstance(value, kind):
        fits = kind is str or abs(value) < 10**300
        require(fits, key, value, "it takes a number below 1e300", f"{key}=0.1, say")
        return kind(value)
    if kind not in WORDS:
        return value
    wanted, example = WORDS[kind]
    fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    quoted = isinstance(value, str) and value.strip("+-.0123456789e") == "" != value
    require(fits, key, f"'{value}'" if quoted else value, f"it takes {wanted}", f"{key}={example}, say")
    if kind is int:
        require(abs(value) < 2**63, key, value, "its absolute value must be below 2^63", f"{key}=1, say")
    if kind is float:
        require(math.isfinite(value), key, value, "it takes a finite number", f"{key}=0.1, say")
    return value
