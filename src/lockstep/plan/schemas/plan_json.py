"""A plan as JSON and back: a checkpoint has its run's, by which `lockstep.load` creates the module."""

import json
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, get_args, get_origin, get_type_hints

CLASS = "__class__"


def to_json(plan: object) -> str:
    """Return a dataclass, and those within it, as JSON. Other objects, such as functions, become their type's name."""
    return json.dumps(plan, default=_to_mapping)


def _to_mapping(value: Any) -> dict[str, Any]:
    values = {field.name: getattr(value, field.name) for field in fields(value)} if is_dataclass(value) else {}
    return {CLASS: f"{type(value).__module__}:{type(value).__name__}", **values}


def from_json(text: str) -> Any:
    """Return the dataclass that `to_json` was called with."""
    return json.loads(text, object_hook=_from_mapping)


def _from_mapping(values: dict[str, Any]) -> Any:
    """Create a dataclass of Lockstep; another mapping is returned as it is."""
    if CLASS not in values:
        return values
    module, _, name = values.pop(CLASS).partition(":")
    cls: Any = getattr(import_module(module), name) if module.startswith("lockstep.") else None
    assert is_dataclass(cls)
    hints = get_type_hints(cls)
    kinds = {key: [get_origin(kind) for kind in (hint, *get_args(hint))] for key, hint in hints.items()}  # or None
    lists = [key for key, value in values.items() if isinstance(value, list) and tuple in kinds[key]]
    return cls(**values | {key: tuple(values[key]) for key in lists})  # type: ignore[operator]
