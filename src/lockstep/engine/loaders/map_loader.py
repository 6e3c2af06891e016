"""A rank's slices of the batches of a map-style data set: the same samples at the same step for any number of ranks.

Global batch k is positions k·B … (k+1)·B of the epoch's order, and rank r of W takes positions r, r+W, r+2W, … *of that
batch*: so every world size sees the same samples at the same step, and a ragged last batch is only shorter.

Data in memory is fetched by index; other data by the user's workers and collate function, each sample under its seed.

The sampler of a DataLoader is replaced by the contract's order if it shuffles or goes in order. Any other one is drawn
under the seed of the epoch, the same on every rank, and its batches are divided.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from lockstep.base.random_state import preserve_generators, seed_all
from lockstep.engine.loaders import BatchShare, RankLoader, RankSlice
from lockstep.engine.loaders.seeded import Places, seeded_loader, start_workers
from lockstep.plan.step_plan import batch_count

BLOCK_BYTES = 2**20  # bytes of the batches that are fetched together
ALIGNED = 64  # Bytes. At an address that is no multiple of them a matrix product may round differently.


class MapLoader(RankLoader):
    """The batches of a DataLoader whose data set has an index."""

    def __init__(
        self, loader: "DataLoader[Any]", rank_slice: RankSlice, seed: int, training: bool, batch_size: int | None
    ) -> None:
        super().__init__(loader, rank_slice, seed, training)
        sampler: Any = loader.batch_sampler
        self.regular = type(sampler) is BatchSampler
        self.global_batch_size = (batch_size or sampler.batch_size) if self.regular else 0
        self.drop_last = self.regular and sampler.drop_last
        self.drawn: tuple[int, list[Any]] = (-1, [])
        self.reader: DataLoader[Any] | None = None

    def __len__(self) -> int:
        """Return the batches of an epoch; without padding those in which this rank has samples, but at least 1.

        Lightning rejects a loader without batches on one rank alone.
        """
        batches = self._epoch()
        return len(batches) if self.pads_ranks else max(1, sum(len(ids) > self.slice.rank for ids in batches))

    @property
    def samples(self) -> int:
        return len(self.order(0)) if self.regular else sum(map(len, self._drawn(self.loader.batch_sampler, 0)))

    def _epoch(self) -> Sequence[Tensor]:
        """Return the int64 sample ids of each global batch of the epoch."""
        if not self.regular:
            batches = [torch.as_tensor(ids) for ids in self._drawn(self.loader.batch_sampler, self.sampled_epoch)]
            return batches[: self.limited(len(batches))]
        order = self.order(self.sampled_epoch)
        count = self.limited(batch_count(len(order), self.global_batch_size, self.drop_last))
        used = order[: count * self.global_batch_size]
        return torch.split(used, max(self.global_batch_size, self.evaluation_batch)) if count else ()

    def order(self, epoch: int) -> Tensor:
        """Return the int64 sample ids of an epoch of regular batches."""
        sampler, samples = self.loader.batch_sampler.sampler, len(self.loader.dataset)
        distributed = isinstance(sampler, DistributedSampler)
        kind = type(sampler) if getattr(sampler, "data_source", None) is self.loader.dataset else None
        if self.fixed or kind is SequentialSampler or (distributed and not sampler.shuffle):
            return torch.arange(samples)
        permuted = kind is RandomSampler and not sampler.replacement and sampler.num_samples == samples
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

    def __iter__(self) -> Iterator[Any]:
        self.shares.clear()  # an epoch that was ended early leaves some
        planned: deque[tuple[int, BatchShare]] = deque()
        fetched = self._fetch(self._slices(planned))
        for batch in fetched:
            ranks, share = planned.popleft()
            if ranks > 1:
                sizes = [len(share.ids[rank::ranks]) for rank in range(1, ranks)]
                share.others = [*zip(islice(fetched, ranks - 1), sizes, strict=True)]
            self.count_arrived(share, batch)
            self.shares.append(share)
            yield batch

    def _slices(self, planned: "deque[tuple[int, BatchShare]]") -> Iterator[Tensor]:
        """Yield the ids of each batch for this rank, or for each virtual rank, and describe them in `planned`."""
        batches, accumulate = self._epoch(), self.accumulate
        sizes = [ids.shape[0] for ids in batches]  # len of a tensor takes 1 µs
        for number in range(self.first, len(batches)):
            ids, begin = batches[number], number - number % accumulate
            slices, share = self.share_of(ids, sizes[number], sum(sizes[begin : begin + accumulate]))
            if slices:
                planned.append((len(slices), share))
            if len(slices) == 1 and not share.is_dummy:
                yield share.ids
            else:
                yield from (ids[rows] for rows in slices)

    def _fetch(self, slices: Iterable[Tensor]) -> Iterator[Any]:
        """Yield a batch for each tensor of ids; None for no ids."""
        dataset = self.loader.dataset
        is_plain = type(dataset) is TensorDataset and self.loader.collate_fn is default_collate
        if is_plain and all(tensor.layout is torch.strided for tensor in dataset.tensors):
            return fetch_in_blocks(dataset.tensors, slices)  # faster than any worker, and nothing random happens
        if self.reader is None:
            self.places = Places()
            self.reader = seeded_loader(self.loader, self.places, self.seed)
        self.places.epoch, self.places.slices = self.sampled_epoch, slices
        return start_workers(self.reader)


def epoch_order(samples: int, seed: int, epoch: int) -> Tensor:
    """Return the order of one epoch: a permutation of 0 … samples-1, shape (samples,), int64."""
    return torch.randperm(samples, generator=torch.Generator().manual_seed(seed + epoch))


def fetch_in_blocks(tensors: Sequence[Tensor], slices: Iterable[Tensor]) -> Iterator[list[Tensor] | None]:
    """Yield the rows of tensors in memory for each tensor of ids; None for no ids.

    An index of hundreds of rows takes as long as one of a single row, so small batches share it.
    """
    slices, sample_bytes = iter(slices), sum(tensor[:1].nbytes for tensor in tensors)
    for first in slices:
        block = [first, *islice(slices, BLOCK_BYTES // max(1, sample_bytes * first.shape[0]))]
        sizes, ids = [ids.shape[0] for ids in block], torch.cat(block)
        columns = [torch.split(tensor.index_select(0, ids), sizes) for tensor in tensors]
        for size, *batch in zip(sizes, *columns, strict=True):
            # where a batch lies in its block depends on where training began
            yield [tensor.clone() if tensor.data_ptr() % ALIGNED else tensor for tensor in batch] if size else None
