"""Slices of a complete batch: samples r, r + W, … of any structure of tensors, for rank r of W."""

from hashlib import blake2b
from typing import Any

import numpy as np
from torch import Tensor, uint8

from lockstep.config_error import ConfigError
from lockstep.structures import is_structure, map_leaves

PLAIN = np.generic | str | bytes | int | float | complex | None


def samples_in(batch: Any) -> int:
    """Return the samples of a batch: the length of its first tensor or array, as Lightning counts them."""
    arrays: list[Any] = []
    map_leaves(arrays.append, _is_array, batch)
    if not arrays:
        raise ConfigError(
            f"data: its batches are of type {type(batch).__name__} without a tensor, so their samples cannot be "
            "counted; write a loader of tensors, or a Dataset."
        )
    return len(arrays[0]) if arrays[0].ndim else 1


def slice_batch(batch: Any, rows: slice) -> Any:
    """Return some samples of a batch; values that do not belong to single samples stay."""
    if rows in (slice(None), slice(0, None, 1)):
        return batch
    samples = samples_in(batch)

    def has_samples(value: Any) -> bool:
        """Whether it is an array, or a list such as texts, with an item for each sample."""
        if _is_array(value):
            return value.ndim > 0 and len(value) == samples
        is_list = isinstance(value, list | tuple) and len(value) == samples
        return is_list and not any(_is_array(item) or is_structure(item) for item in value)

    return map_leaves(lambda value: value[rows], has_samples, batch)


def fingerprint(batch: Any) -> bytes:
    """Return a hash of a batch's values, equal for equal samples in any process."""
    digest = blake2b(digest_size=16)

    def update(leaf: Any) -> None:
        if isinstance(leaf, Tensor):
            leaf = leaf.detach().cpu().contiguous().view(-1).view(uint8).numpy()
        value = repr(leaf) if isinstance(leaf, PLAIN) else type(leaf).__name__
        digest.update(leaf.tobytes() if isinstance(leaf, np.ndarray) else value.encode())

    map_leaves(update, lambda value: not is_structure(value), batch)
    return digest.digest()


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray)
