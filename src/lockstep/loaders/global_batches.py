"""Which samples are in which global batch of a user's DataLoader, epoch by epoch.

Its own sampler is replaced by the contract's order where it shuffles or goes in order; any other one is asked under the
seed of the epoch, the same on every rank, and its batches are shared out.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, SequentialSampler

from lockstep.random_state import preserve_generators, seed_all
from lockstep.sampler import epoch_order


class GlobalBatches:
    """The global batches of a map-style data set; `set_epoch` selects the order.

    batch_size: instead of the loader's own, where the plan says so. regular: whether all but the last have this size.
    """

    def __init__(self, loader: "DataLoader[Any]", seed: int, batch_size: int | None = None) -> None:
        self.loader, self.seed, self.epoch = loader, seed, 0
        self.fixed = False  # the same in each epoch
        self.drawn: tuple[int, list[Any]] = (-1, [])
        sampler: Any = loader.batch_sampler
        self.regular = type(sampler) is BatchSampler
        self.batch_size = (batch_size or sampler.batch_size) if self.regular else None
        self.drop_last = self.regular and sampler.drop_last

    def set_epoch(self, epoch: int) -> None:
        self.epoch = 0 if self.fixed else epoch

    def batches(self) -> Sequence[Tensor]:
        """Return the int64 sample ids of each batch of the epoch."""
        if not self.regular:
            return [torch.as_tensor(own) for own in self._drawn(self.loader.batch_sampler)]
        batches = torch.split(self.order(), self.batch_size or 1)
        short = self.drop_last and len(batches) > 0 and len(batches[-1]) < (self.batch_size or 1)
        return batches[:-1] if short else batches

    @property
    def samples(self) -> int:
        """Return the samples of an epoch, including those that `drop_last` drops."""
        return len(self.order()) if self.regular else sum(map(len, self.batches()))

    def order(self) -> Tensor:
        """Return the order of samples in an epoch of regular batches."""
        batched: Any = self.loader.batch_sampler
        sampler, samples = batched.sampler, len(self.loader.dataset)  # type: ignore[arg-type]
        divided = isinstance(sampler, DistributedSampler)
        if self.fixed or type(sampler) is SequentialSampler or (divided and not sampler.shuffle):
            return torch.arange(samples)
        permuted = type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == samples
        if divided or permuted:
            return epoch_order(samples, self.seed, self.epoch)
        return torch.as_tensor(self._drawn(sampler), dtype=torch.int64)

    def _drawn(self, sampler: Any) -> list[Any]:
        """Return what a user's sampler draws in this epoch: a function of (seed, epoch).

        One that goes by a generator within it is drawn once for each epoch, also for those before a resume.
        """
        last, _ = self.drawn
        if last != self.epoch:
            first = last + 1 if last < self.epoch else self.epoch
            for epoch in range(first, self.epoch + 1):
                self.drawn = epoch, self._draw(sampler, epoch)
        return self.drawn[1]

    def _draw(self, sampler: Any, epoch: int) -> list[Any]:
        with preserve_generators():
            seed_all(self.seed + epoch)
            for own in (sampler, getattr(sampler, "sampler", None)):
                if isinstance(generator := getattr(own, "generator", None), torch.Generator):
                    generator.manual_seed(self.seed + epoch)
                if own is not None and hasattr(own, "set_epoch"):
                    own.set_epoch(epoch)
            return list(sampler)
