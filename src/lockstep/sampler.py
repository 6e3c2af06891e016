"""Which rank sees which sample, when: one pure function of order for every engine and strategy.

Epoch e walks a permutation seeded by `seed + e` (what torch's DistributedSampler does). Global batch k is its
positions k·B … (k+1)·B, and rank r of W takes positions r, r+W, r+2W, … *of that batch*: so every world size sees
the same samples at the same step, and a ragged last batch is only shorter.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

EVALUATION_BATCH = 1024
"""Global batch of evaluation, at least; larger batches change nothing in sums but their speed."""


def epoch_order(samples: int, seed: int, epoch: int) -> Tensor:
    """The order of one epoch: a permutation of 0 … samples-1, shape (samples,), int64."""
    return torch.randperm(samples, generator=torch.Generator().manual_seed(seed + epoch))


def rank_slices(order: Tensor, batch_size: int, rank: int, world_size: int) -> Iterator[Tensor]:
    """The indices that `rank` of `world_size` takes of each global batch; may be empty in a ragged one.

    So every rank has the same number of batches, and no rank leaves a collective early.
    """
    batches = torch.split(order, batch_size)
    return iter(batches) if world_size == 1 else (batch[rank::world_size] for batch in batches)
