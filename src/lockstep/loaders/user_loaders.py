"""A user's DataLoader in one rank's slices: the same samples at the same step for any number of ranks and workers.

The data set, the collate function, workers and memory options are the user's. Each sample of a map-style data set is
fetched under a seed of its own; an iterable is read by every rank, which keeps its slice of each global batch.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from lockstep.config_error import ConfigError
from lockstep.data.seeded import SampleReader, seed_sample, with_context
from lockstep.loaders.batch_slices import fingerprint, part_of, samples_in
from lockstep.loaders.global_batches import GlobalBatches
from lockstep.loaders.rank_loader import BatchShare, RankLoader, RankSlice
from lockstep.parallel.messages import all_gather_bytes
from lockstep.random_state import preserve_generators, random_state, restore_random_state

END = object()
OPTIONS = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "prefetch_factor", "multiprocessing_context")
"""Options of a user's DataLoader that are kept."""


class MapLoader(RankLoader):
    """The batches of a map-style data set."""

    def __init__(
        self, loader: "DataLoader[Any]", rank_slice: RankSlice, seed: int, training: bool, batch_size: int | None
    ) -> None:
        super().__init__(rank_slice, seed, training)
        self.loader = loader
        self.batches = GlobalBatches(loader, seed, batch_size)
        self.reader: SampleReader | None = None

    def __len__(self) -> int:
        """Return the batches of an epoch; of an evaluation those in which this rank has samples, but at least 1.

        Lightning rejects a loader without batches on one rank alone.
        """
        batches = self._epoch()
        return len(batches) if self.training else max(1, sum(len(ids) > self.slice.rank for ids in batches))

    @property
    def smallest_batch(self) -> int:
        """Return the samples of the smallest batch; the number of ranks if there is no batch."""
        return min((len(ids) for ids in self._epoch()), default=self.slice.world_size)

    def _epoch(self) -> Sequence[Tensor]:
        """Return the ids of each global batch of the epoch."""
        self.batches.fixed = self.fixed
        self.batches.set_epoch(self.epoch)
        batches = self.batches.batches()
        return batches[: self.limited(len(batches))]

    def __iter__(self) -> Iterator[Any]:
        self.shares.clear()
        batches = self._epoch()
        plans = [self._plan(batches, number) for number in range(self.first, len(batches))]
        plans = [plan for plan in plans if plan[0]]
        fetched = self._fetch([ids for slices, _ in plans for ids in slices])
        for slices, share in plans:
            first, *others = islice(fetched, len(slices))
            share.others = [(batch, len(ids)) for batch, ids in zip(others, slices[1:], strict=True)]
            self.shares.append(share)
            yield first

    def _plan(self, batches: Sequence[Tensor], number: int) -> tuple[list[Tensor], BatchShare]:
        """Return the ids to fetch for this rank, or for each virtual rank; none in an evaluation without samples."""
        ids = batches[number]
        begin = number - number % self.accumulate
        step_samples = sum(len(each) for each in batches[begin : begin + self.accumulate])
        slices, share = self.share_of(ids, step_samples)
        return [ids[rows] for rows in slices], share

    def _fetch(self, slices: Sequence[Tensor]) -> Iterator[Any]:
        """Yield a batch for each tensor of ids; None for no ids."""
        dataset = self.loader.dataset
        if type(dataset) is TensorDataset and self.loader.collate_fn is default_collate:
            # no worker is faster than an index, and nothing random happens
            tensors = dataset.tensors
            return (None if len(ids) == 0 else [tensor.index_select(0, ids) for tensor in tensors] for ids in slices)
        if self.reader is None:
            options = {**_options(self.loader), "persistent_workers": self.loader.persistent_workers}
            self.reader = SampleReader(dataset, self.loader.collate_fn, self.seed, options)
        return self.reader.batches(self.epoch if self.training else 0, slices)  # an evaluation is always the same


class StreamLoader(RankLoader):
    """The batches of an iterable: made of an IterableDataset's samples, or complete ones, divided as they come."""

    def __init__(self, loader: Any, rank_slice: RankSlice, seed: int, training: bool, batch_size: int | None) -> None:
        super().__init__(rank_slice, seed, training)
        self.loader = loader
        self.is_checked = False
        self.has_samples = isinstance(loader, DataLoader) and loader.batch_size is not None
        self.batch_size = (batch_size or loader.batch_size) if self.has_samples else None

    def __len__(self) -> int:
        """Return the batches of an epoch; raise TypeError if the data has no length."""
        return self.limited(len(self.loader))

    def __iter__(self) -> Iterator[Any]:
        self.shares.clear()
        position = 0
        most = self.limit if isinstance(self.limit, int) else None if self.limit == 1 else len(self)
        for number, (batch, samples) in enumerate(islice(self._global_batches(), most)):
            ids = torch.arange(position, position + samples)
            position += samples
            if number < self.first:
                continue
            slices, share = self.share_of(ids, samples if self.accumulate == 1 else None)
            if slices:
                first, *others = ((self._rows(batch, rows, len(ids[rows])), len(ids[rows])) for rows in slices)
                share.others = others
                self.shares.append(share)
                yield first[0]

    def _rows(self, batch: Any, rows: slice, samples: int) -> Any:
        """Return some samples of a global batch; None for no samples."""
        if samples == 0:
            return None
        return self.loader.collate_fn(batch[rows]) if self.has_samples else part_of(batch, rows)

    def first_fingerprint(self) -> bytes:
        """Return the fingerprint of the first global batch, read without workers."""
        return next((fingerprint(batch) for batch, _ in self._global_batches(workers=False)), b"")

    def _global_batches(self, workers: bool = True) -> Iterator[tuple[Any, int]]:
        """Yield each global batch and the number of its samples, drawn under the seed of the epoch.

        Raises:
            ConfigError: ranks read different samples.
        """
        with preserve_generators():
            seed_sample(self.seed, self.epoch if self.training else 0, -1)
            source = iter(self._source(workers))
            state = random_state([])
        while True:
            with preserve_generators():
                restore_random_state(state, [])
                batch: Any = next(source, END)
                state = random_state([])
            self._require_equal(batch)
            if batch is END:
                return
            yield batch, len(batch) if self.has_samples else samples_in(batch)

    def _require_equal(self, batch: Any) -> None:
        """Raise if the first batch differs between ranks: each reads the complete stream, and keeps its slice."""
        if self.is_checked or not dist.is_initialized():
            return
        self.is_checked = True
        if len({*all_gather_bytes(b"" if batch is END else fingerprint(batch))}) > 1:
            raise ConfigError(
                "data: ranks read other samples of it, and here each reads all and keeps its own share; write one that "
                "reads the same on every rank, and draws from the process's generators (of webdataset "
                "nodesplitter=None, shuffle(…, rng=random))."
            )

    def _source(self, workers: bool) -> Any:
        """Return an iterable of global batches."""
        if not isinstance(self.loader, DataLoader):
            return self.loader
        generator = torch.Generator().manual_seed(self.seed + (self.epoch if self.training else 0))
        options = {**(_options(self.loader) if workers else {}), "generator": generator}
        if self.has_samples:
            options |= {"batch_size": self.batch_size, "drop_last": self.loader.drop_last, "collate_fn": list}
        else:
            options |= {"batch_size": None, "collate_fn": self.loader.collate_fn}
            if not isinstance(self.loader.dataset, IterableDataset):
                options["sampler"] = self.loader.sampler
        return DataLoader(self.loader.dataset, **options)


def rank_loader(
    loader: Any, rank_slice: RankSlice, seed: int, training: bool, batch_size: int | None = None
) -> RankLoader:
    """Return a loader of a rank's slice of each batch of any loader."""
    batched = isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)
    if batched and loader.batch_sampler is not None:
        return MapLoader(loader, rank_slice, seed, training, batch_size)
    return StreamLoader(loader, rank_slice, seed, training, batch_size)


def _options(loader: "DataLoader[Any]") -> dict[str, Any]:
    return with_context({name: getattr(loader, name) for name in OPTIONS})
