"""Which samples are in which global batch of a map-style data set, epoch by epoch.

The sampler of a DataLoader is replaced by the contract's order if it shuffles or goes in order. Any other one is drawn
under the seed of the epoch, the same on every rank, and its batches are divided.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, SequentialSampler

from lockstep.random_state import preserve_generators, seed_all
from lockstep.sampler import epoch_order


class GlobalBatches:
    """The order and the batches of a DataLoader.

    regular: whether all batches but the last have `batch_size` samples: the plan's, or else the loader's.
    """

    def __init__(self, loader: "DataLoader[Any]", seed: int, batch_size: int | None = None) -> None:
        self.loader, self.seed = loader, seed
        self.drawn: tuple[int, list[Any]] = (-1, [])
        sampler: Any = loader.batch_sampler
        self.regular = type(sampler) is BatchSampler
        self.batch_size: int = (batch_size or sampler.batch_size) if self.regular else 0
        self.drop_last: bool = self.regular and sampler.drop_last

    def irregular(self, epoch: int) -> Sequence[Tensor]:
        """Return the int64 sample ids of each batch of a user's batch sampler."""
        return [torch.as_tensor(ids) for ids in self._drawn(self.loader.batch_sampler, epoch)]

    @property
    def samples(self) -> int:
        """Return the samples of the first epoch, including those that `drop_last` drops."""
        return len(self.order(0)) if self.regular else sum(map(len, self.irregular(0)))

    def order(self, epoch: int, fixed: bool = False) -> Tensor:
        """Return the int64 sample ids of an epoch of regular batches; `fixed`: without shuffling."""
        batched: Any = self.loader.batch_sampler
        sampler, samples = batched.sampler, len(self.loader.dataset)  # type: ignore[arg-type]
        distributed = isinstance(sampler, DistributedSampler)
        if fixed or type(sampler) is SequentialSampler or (distributed and not sampler.shuffle):
            return torch.arange(samples)
        permuted = type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == samples
        if distributed or permuted:
            return epoch_order(samples, self.seed, epoch)
        return torch.as_tensor(self._drawn(sampler, epoch), dtype=torch.int64)

    def _drawn(self, sampler: Any, epoch: int) -> list[Any]:
        """Return what a user's sampler draws in an epoch: a function of (seed, epoch).

        A sampler with its own generator is drawn once for each epoch, also for those before a resume.
        """
        last, _ = self.drawn
        if last != epoch:
            for each in range(last + 1 if last < epoch else epoch, epoch + 1):
                self.drawn = each, self._draw(sampler, each)
        return self.drawn[1]

    def _draw(self, sampler: Any, epoch: int) -> list[Any]:
        with preserve_generators():
            seed_all(self.seed + epoch)
            for each in (sampler, getattr(sampler, "sampler", None)):
                if isinstance(generator := getattr(each, "generator", None), torch.Generator):
                    generator.manual_seed(self.seed + epoch)
                if each is not None and hasattr(each, "set_epoch"):
                    each.set_epoch(epoch)
            return list(sampler)
