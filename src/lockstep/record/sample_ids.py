"""Which samples a step took, in 64 bits that ranks can add in any order."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

STRIDE = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: multiples of it are spread evenly, so that ids and positions do not collide."""


def digests(batches: Sequence[Tensor], first_batch: int, batch_size: int, rank: int, world_size: int) -> Tensor:
    """int64, one a batch: the sum of a hash of each (sample id, its position in the epoch's order).

    A sum, so that ranks can add theirs in any order: equal digests mean that every sample was at its position.

    Args:
        batches: this rank's sample ids of each batch.
        first_batch: the number, within the epoch, of the first of them.
    """
    lengths = [len(ids) for ids in batches]
    ends = np.cumsum(lengths)
    ids = torch.cat([*batches]).cpu().numpy().astype(np.uint64)
    numbers = np.repeat(np.arange(len(lengths)), lengths)
    within = np.arange(len(ids)) - np.repeat(ends - lengths, lengths)
    positions = (first_batch + numbers) * batch_size + rank + within * world_size
    hashes = _mixed(ids * STRIDE + positions.astype(np.uint64))
    running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)])
    return torch.from_numpy((running[ends] - running[ends - lengths]).view(np.int64))


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Uint64 to uint64, every bit depending on every bit (Steele, Lea and Flood, SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = numbers ^ (numbers >> np.uint64(31))
    return mixed
