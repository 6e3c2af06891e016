"""Slices of a complete batch: samples r, r + W, … of any structure of tensors, for rank r of W."""

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
        ConfigError: the batch has no tensor.
    """
    first = next((leaf for leaf in _leaves(batch) if isinstance(leaf, Tensor | np.ndarray)), None)
    if first is None:
        raise ConfigError(
            f"data: its batches are of type {type(batch).__name__} without a tensor, so their samples cannot be "
            "counted; write a loader of tensors, or a Dataset."
        )
    return len(first) if first.ndim else 1


def slice_batch(batch: Any, rows: slice) -> Any:
    """Return some samples of a batch; values that do not belong to single samples stay."""
    return batch if rows in (slice(None), slice(0, None, 1)) else _slice(batch, samples_in(batch), rows)


def fingerprint(batch: Any) -> bytes:
    """Return a hash of a batch's values, equal for equal samples in any process."""
    digest = blake2b(digest_size=16)
    for leaf in _leaves(batch):
        if isinstance(leaf, Tensor):
            leaf = leaf.detach().cpu().contiguous().view(-1).view(uint8).numpy()
        digest.update(leaf.tobytes() if isinstance(leaf, np.ndarray) else repr(leaf).encode())
    return digest.digest()


def _slice(value: Any, samples: int, rows: slice) -> Any:
    if isinstance(value, Tensor | np.ndarray):
        return value[rows] if value.ndim and len(value) == samples else value
    if isinstance(value, list | tuple):
        if len(value) == samples and not any(_is_structure(item) for item in value):
            return value[rows]
        items = [_slice(item, samples, rows) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if not _is_structure(value):
        return value
    sliced: Any = copy.copy(value)  # its __init__ may take other arguments
    if isinstance(value, Mapping):
        for key in value:
            sliced[key] = _slice(value[key], samples, rows)
    else:
        for name in (field.name for field in fields(value)):
            object.__setattr__(sliced, name, _slice(getattr(value, name), samples, rows))
    return sliced


def _is_structure(value: Any) -> bool:
    is_instance = is_dataclass(value) and not isinstance(value, type)
    return is_instance or isinstance(value, Tensor | np.ndarray | Mapping | list | tuple)


def _leaves(value: Any) -> Iterator[Any]:
    """Yield tensors, arrays and plain values; of other objects the name of their type."""
    if isinstance(value, Tensor | np.ndarray | np.generic | str | bytes | int | float | complex | None):
        yield value
    elif isinstance(value, Mapping):
        for key in value:
            yield key
            yield from _leaves(value[key])
    elif _is_structure(value):
        items = value if isinstance(value, list | tuple) else [getattr(value, field.name) for field in fields(value)]
        for item in items:
            yield from _leaves(item)
    else:
        yield type(value).__name__
