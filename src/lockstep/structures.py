"""The tensors in nested structures, such as outputs of a net, and in its state."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor


def map_tensors(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Return `first` with each tensor replaced by the function of the tensors at the same place of all structures.

    Structures are nested mappings, lists, tuples and dataclasses; other objects stay.
    """
    if isinstance(first, Tensor):
        return function(first, *others)
    if isinstance(first, Mapping):
        mapped: Any = copy.copy(first)
        for key in first:
            mapped[key] = map_tensors(function, first[key], *(other[key] for other in others))
        return mapped
    if isinstance(first, list | tuple):
        items = [map_tensors(function, *values) for values in zip(first, *others, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    if is_dataclass(first) and not isinstance(first, type):
        mapped = copy.copy(first)  # its __init__ may take other arguments
        for name in (field.name for field in fields(first)):
            value = map_tensors(function, getattr(first, name), *(getattr(other, name) for other in others))
            object.__setattr__(mapped, name, value)
        return mapped
    return first


def tensors_in(structure: Any) -> list[Tensor]:
    """Return the tensors of a structure, in their order."""
    tensors: list[Tensor] = []
    map_tensors(tensors.append, structure)
    return tensors


def tensors_of(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a state_dict by name, without the extra state of layers, which may be any object."""
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}
