"""Slices of a batch that is made already: samples r, r + W, … of whatever holds them, for rank r of W."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from torch import Tensor, uint8

from lockstep.config_error import ConfigError


def samples_in(batch: Any) -> int:
    """Return the samples of a batch: the length of its first tensor or array, as Lightning counts them.

    Raises:
        ConfigError: it holds none.
    """
    first = next((own for own in _leaves(batch) if isinstance(own, Tensor | np.ndarray)), None)
    if first is None:
        raise ConfigError(
            f"data: a batch of it is a {type(batch).__name__} without a tensor, so nobody can tell its samples; write "
            "a loader of tensors, or a Dataset."
        )
    return len(first) if first.ndim else 1


def part_of(batch: Any, rows: slice) -> Any:
    """Return some samples of a batch; what does not belong to single samples stays."""
    return batch if rows == slice(0, None, 1) else _part(batch, samples_in(batch), rows)


def fingerprint(batch: Any) -> bytes:
    """Return a hash of a batch's values, equal for equal samples in any process."""
    found = blake2b(digest_size=16)
    for own in _leaves(batch):
        if isinstance(own, Tensor):
            own = own.detach().cpu().contiguous().view(-1).view(uint8).numpy()
        found.update(own.tobytes() if isinstance(own, np.ndarray) else repr(own).encode())
    return found.digest()


def _is_dataclass(own: Any) -> bool:
    return is_dataclass(own) and not isinstance(own, type)


def _part(own: Any, samples: int, rows: slice) -> Any:
    if isinstance(own, Tensor | np.ndarray):
        return own[rows] if own.ndim and len(own) == samples else own
    if isinstance(own, Mapping):
        parts = {key: _part(value, samples, rows) for key, value in own.items()}
        return type(own)(parts) if not isinstance(own, dict) else parts  # type: ignore[call-arg]
    if isinstance(own, tuple) and hasattr(own, "_fields"):
        return type(own)(*(_part(value, samples, rows) for value in own))
    if isinstance(own, list | tuple):
        if len(own) == samples and not any(_is_batch(value) for value in own):
            return own[rows]
        return type(own)(_part(value, samples, rows) for value in own)
    if _is_dataclass(own):
        made = copy.copy(own)  # its __init__ may take other arguments
        for field in fields(own):
            object.__setattr__(made, field.name, _part(getattr(own, field.name), samples, rows))
        return made
    return own


def _is_batch(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray | Mapping | list | tuple) or _is_dataclass(value)


def _leaves(own: Any) -> Iterator[Any]:
    """Yield tensors, arrays and plain values; of other objects the name of their type."""
    if isinstance(own, Mapping):
        for key, value in own.items():
            yield key
            yield from _leaves(value)
    elif isinstance(own, list | tuple):
        for value in own:
            yield from _leaves(value)
    elif _is_dataclass(own):
        for field in fields(own):
            yield from _leaves(getattr(own, field.name))
    else:
        plain = isinstance(own, Tensor | np.ndarray | np.generic | str | bytes | int | float | complex | None)
        yield own if plain else type(own).__name__
