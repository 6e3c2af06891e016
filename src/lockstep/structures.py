"""The tensors within a net's outputs (one, or any nesting of tuples, lists and mappings of them), and in its state."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor


def map_tensors(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """The structure of `first`, with what the function makes of the tensors at the same place of all."""
    if isinstance(first, Tensor):
        return function(first, *others)
    if isinstance(first, Mapping):
        made: Any = copy.copy(first)
        for key in first:
            made[key] = map_tensors(function, first[key], *(other[key] for other in others))
        return made
    if isinstance(first, list | tuple):
        parts = [map_tensors(function, *own) for own in zip(first, *others, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return first


def tensors_in(structure: Any) -> list[Tensor]:
    found: list[Tensor] = []
    map_tensors(found.append, structure)
    return found


def tensors_of(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Of a net's state_dict: without what layers put in by `get_extra_state`, which may be anything."""
    return {name: own for name, own in state.items() if isinstance(own, Tensor)}
