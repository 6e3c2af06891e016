"""Which rank sees which sample, when: one pure function of order for every engine and strategy.

Epoch e walks a permutation seeded by `seed + e` (what torch's DistributedSampler does). Global batch k is its
positions k·B … (k+1)·B, and rank r of W takes positions r, r+W, r+2W, … *of that batch*: so every world size sees
the same samples at the same step, and a ragged last batch is only shorter.
"""

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor
from torch.utils.data import Sampler

from lockstep.batch_math import batch_count

EVALUATION_BATCH = 1024
"""Global batch of evaluation, at least; larger batches change nothing in sums but their speed."""


def evaluation_batch(batch_size: int) -> int:
    """The global batch of evaluation for that of training."""
    return max(batch_size, EVALUATION_BATCH)


def epoch_order(samples: int, seed: int, epoch: int) -> Tensor:
    """The order of one epoch: a permutation of 0 … samples-1, shape (samples,), int64."""
    return torch.randperm(samples, generator=torch.Generator().manual_seed(seed + epoch))


def rank_slices(order: Tensor, batch_size: int, rank: int, world_size: int) -> Iterator[Tensor]:
    """The indices that `rank` of `world_size` takes of each global batch; may be empty in a ragged one."""
    batches = torch.split(order, batch_size)
    return iter(batches) if world_size == 1 else (batch[rank::world_size] for batch in batches)


class ShardSampler(Sampler[Tensor]):
    """One rank's share of every global batch, an index tensor a batch; `set_epoch` selects the order.

    Without a seed the order is 0 … samples-1, for evaluation. Every rank yields the same number of batches, empty ones
    too, so that no rank leaves a collective early, and every sample is in exactly one rank's share.
    """

    def __init__(
        self,
        samples: int,
        batch_size: int,
        *,
        rank: int,
        world_size: int,
        seed: int | None = None,
        drop_last: bool = False,
        begin: tuple[int, int] = (0, 0),
        batches: int | None = None,
    ) -> None:
        """An epoch has so many `batches`, the first of its order; None: all.

        `begin`: training resumes in this epoch at this batch; that epoch leaves out the batches before it.
        """
        self.batches = batches
        self.samples, self.batch_size, self.seed = samples, batch_size, seed
        self.rank, self.world_size, self.drop_last = rank, world_size, drop_last
        self.epoch, self.begin = 0, begin

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return batch_count(self.samples, self.batch_size, self.drop_last) if self.batches is None else self.batches

    def __iter__(self) -> Iterator[Tensor]:
        order = torch.arange(self.samples) if self.seed is None else epoch_order(self.samples, self.seed, self.epoch)
        epoch, first = self.begin
        slices = rank_slices(order, self.batch_size, self.rank, self.world_size)
        return islice(slices, first if self.epoch == epoch else 0, len(self))
