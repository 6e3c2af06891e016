"""This rank's share of each global batch: which samples, in which order, and how they are read.

Epoch e of n samples is `torch.randperm(n)` under seed + e, if the user's DataLoader shuffles. Batch k is positions
k·B … (k+1)·B of it, of which rank r of W takes r, r + W, r + 2W, … So the samples of a step are the same for any W.
"""

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.utils.data as td
from torch import Tensor

from lockstep.base.config_error import require
from lockstep.base.structures import samples_left

END = object()


@dataclass
class Share:
    """What one rank takes of a global batch.

    batch: this rank's samples, collated. A rank that has none takes part in the step by a sample that does not count.
    ids: of this rank's samples. total: samples of the global batch. step_total: of all batches of the optimizer step.
    """

    batch: Any
    ids: Tensor
    total: int
    step_total: int | None
    is_last: bool

    @property
    def count(self) -> int:
        return len(self.ids)


def seed_by(*numbers: int) -> None:
    """Seed all generators by a hash: the first 8 bytes of BLAKE2b over the numbers, each a little-endian int64."""
    packed = struct.pack(f"<{len(numbers)}q", *numbers)
    seed = int.from_bytes(blake2b(packed, digest_size=8).digest(), "little")
    torch.default_generator.manual_seed(seed >> 1)
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def generator_states() -> tuple[Any, ...]:
    gpu = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), gpu


@contextmanager
def preserved_generators(seed: int | None = None, states: Any = None) -> Iterator[None]:
    """Put the generators back afterwards; within, they may begin at a seed, or in states of before."""
    before = generator_states()
    if seed is not None:
        seed_all(seed)
    set_generators(states)
    try:
        yield
    finally:
        set_generators(before)


def set_generators(states: tuple[Any, ...] | None) -> None:
    if states is not None:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if states[3] is not None:
            torch.cuda.set_rng_state(states[3])


class Loader:
    """One rank's view of a user's DataLoader, or of any iterable of batches.

    size: of a global batch; 0 if its samples are not batched here. limit: of the batches of an epoch, or their share.
    smallest: samples that a batch has at least, in an evaluation. fixed: every epoch is the first, in order.
    """

    def __init__(self, loader: Any, rank: Any, stage: str, smallest: int) -> None:
        config, self.loader, self.rank, self.world = rank.config, loader, rank.rank, rank.world
        self.trains, self.seed, self.limit = stage == "train", config.seed, config.trainer[f"limit_{stage}_batches"]
        self.fixed, self.smallest = self.trains and config.trainer.overfit_batches > 0, 1 if self.trains else smallest
        kind, iterators = type(loader), ("__iter__", "_get_iterator")  # of which a derived class may have its own
        self.is_plain = isinstance(loader, td.DataLoader)
        self.is_plain &= all(getattr(kind, name, None) is getattr(td.DataLoader, name) for name in iterators)
        has_index = self.is_plain and not isinstance(loader.dataset, td.IterableDataset)
        self.batch_sampler: Any = loader.batch_sampler if has_index else None  # else it is a stream
        source = loader if self.batch_sampler is None else self.batch_sampler
        self.drop_last = getattr(source, "drop_last", False) or (self.trains and config.drop_last)
        is_regular = type(self.batch_sampler) is td.BatchSampler or (self.is_plain and loader.batch_size is not None)
        size = config.batch_size if self.trains and is_regular else None
        self.size: int = size or getattr(source, "batch_size", None) or 0
        self.joins = self.is_plain and loader.batch_size is not None  # samples of a stream
        self.drawn: tuple[int, list[Any]] = -1, []

    def limited(self, batches: int) -> int:
        return min(self.limit, batches) if isinstance(self.limit, int) else int(self.limit * batches)

    @cached_property
    def count(self) -> int:
        """Return the number of batches of an epoch; 0 if the data has no length."""
        try:
            if self.batch_sampler is not None:
                return len(self.batches(0))
            length, size = (len(self.loader.dataset), self.size) if self.joins else (len(self.loader), 1)
            return self.limited(length // size if self.drop_last else -(-length // size))
        except (TypeError, NotImplementedError):
            return 0

    def batches(self, epoch: int) -> Sequence[Tensor]:
        """Return the sample ids of each global batch."""
        if type(self.batch_sampler) is not td.BatchSampler:  # batches of the user's making
            batches = [torch.as_tensor(ids) for ids in self.draw(self.batch_sampler, epoch)]
            return batches[: self.limited(len(batches))]
        order = self.order(self.batch_sampler.sampler, epoch)
        count = len(order) // self.size if self.drop_last else -(-len(order) // self.size)
        order = order[: self.limited(count) * self.size]
        return order.split(max(self.size, self.smallest)) if len(order) else ()  # type: ignore[no-untyped-call]

    def order(self, sampler: Any, epoch: int) -> Tensor:
        samples, is_distributed = len(self.loader.dataset), isinstance(sampler, td.DistributedSampler)
        if self.fixed or type(sampler) is td.SequentialSampler or (is_distributed and not sampler.shuffle):
            return torch.arange(samples)
        permutes = type(sampler) is td.RandomSampler and not sampler.replacement and sampler.num_samples == samples
        if permutes or is_distributed:
            return torch.randperm(samples, generator=torch.Generator().manual_seed(self.seed + epoch))
        return torch.as_tensor(self.draw(sampler, epoch), dtype=torch.int64)

    def draw(self, sampler: Any, epoch: int) -> list[Any]:
        """Return what a sampler of the user's draws in an epoch, once, under seed + epoch."""
        if self.drawn[0] != epoch:
            with preserved_generators(self.seed + epoch):
                several: list[Any] = [sampler, getattr(sampler, "sampler", None)]
                for each in several:
                    if isinstance(generator := getattr(each, "generator", None), torch.Generator):
                        generator.manual_seed(self.seed + epoch)
                    if hasattr(each, "set_epoch"):
                        each.set_epoch(epoch)
                self.drawn = epoch, list(sampler)
        return self.drawn[1]

    def shares(self, epoch: int, accumulate: int = 1) -> Iterator[Share]:
        """Yield this rank's share of each batch of an epoch; in an evaluation of those in which it has samples."""
        epoch = epoch if self.trains and not self.fixed else 0
        shares = self.of_stream if self.batch_sampler is None else self.of_samples
        for share in shares(epoch, accumulate):
            if share.count or self.trains:
                self.require_all(share)
                yield share

    def require_all(self, share: Share) -> None:
        """Refuse a batch with fewer samples than those by which its loss is weighted."""
        reason, hint = "engine=raw trains with all samples, and a collate function drops some", "engine=lightning"
        fits = samples_left(share.batch, share.count) == share.count
        require(fits, "data", type(self.loader.dataset).__name__, reason, hint)

    def of_samples(self, epoch: int, accumulate: int) -> Iterator[Share]:
        batches = self.batches(epoch)
        for number, ids in enumerate(batches):
            first, mine = number - number % accumulate, ids[self.rank :: self.world]
            step_total = sum(map(len, batches[first : first + accumulate]))
            batch = self.read(epoch, mine if len(mine) else ids[:1]) if len(mine) or self.trains else None
            yield Share(batch, mine, len(ids), step_total, is_last=number == len(batches) - 1)

    def read(self, epoch: int, ids: Tensor) -> Any:
        """Return a batch of samples; each is read under generators that are seeded by (seed, epoch, id)."""
        dataset, collate = self.loader.dataset, self.loader.collate_fn
        if type(dataset) is td.TensorDataset and collate is td.default_collate:
            return [tensor[ids] for tensor in dataset.tensors]
        samples = []
        with preserved_generators():
            for number in ids.tolist():
                seed_by(self.seed, epoch, number)
                samples.append(dataset[number])
            return collate(samples)

    def of_stream(self, epoch: int, accumulate: int) -> Iterator[Share]:
        """Every rank reads all samples of an iterable, under (seed, epoch, -1), and takes its rows of each batch."""
        most = self.limit if isinstance(self.limit, int) else None if self.limit == 1.0 else self.count
        following: Any
        batches: Any = islice(self.read_stream(epoch), most)
        end, following = 0, next(batches, None)
        while following is not None:
            (batch, total, rows), following = following, next(batches, None)
            mine = torch.arange(end, end + total)[self.rank :: self.world]
            chosen = slice(self.rank, None, self.world) if len(mine) else slice(1)
            yield Share(rows(batch, chosen), mine, total, total if accumulate == 1 else None, following is None)
            end += total

    def read_stream(self, epoch: int) -> Iterator[tuple[Any, int, Callable[[Any, slice], Any]]]:
        """Yield each batch, the number of its samples, and what takes rows of it."""
        loader, joins = self.loader, self.joins
        with preserved_generators():
            seed_by(self.seed, epoch, -1)
            if self.is_plain:
                options: dict[str, Any] = {"num_workers": loader.num_workers, "worker_init_fn": loader.worker_init_fn}
                options["generator"] = torch.Generator().manual_seed(self.seed + epoch)
                options |= {"batch_size": self.size, "drop_last": self.drop_last} if joins else {"batch_size": None}
                if not isinstance(loader.dataset, td.IterableDataset):
                    options["sampler"] = loader.sampler
                loader = td.DataLoader(loader.dataset, collate_fn=list if joins else loader.collate_fn, **options)
            batches, states = iter(loader), generator_states()
        batch: Any = None
        while True:
            with preserved_generators(states=states):
                batch, states = next(batches, END), generator_states()
            if batch is END:
                return
            if joins:
                yield batch, len(batch), lambda batch, rows: self.loader.collate_fn(batch[rows])
            else:
                yield batch, samples_in(batch), rows_of


def samples_in(batch: Any) -> int:
    """Return the length of the first tensor or array of a batch."""
    if isinstance(batch, Tensor | np.ndarray):
        return len(batch) if batch.ndim else 1
    parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list | tuple) else ()
    return next((samples for part in parts if (samples := samples_in(part))), 0)


def rows_of(batch: Any, rows: slice, samples: int | None = None) -> Any:
    """Return rows of every tensor, array and list in a batch that has one for each sample."""
    samples = samples or samples_in(batch)
    if isinstance(batch, dict):
        return {name: rows_of(part, rows, samples) for name, part in batch.items()}
    is_array, is_list = isinstance(batch, Tensor | np.ndarray), isinstance(batch, list | tuple)
    if is_list and (len(batch) != samples or any(isinstance(part, Tensor | np.ndarray | list) for part in batch)):
        parts = [rows_of(part, rows, samples) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch[rows] if is_list or (is_array and batch.ndim and len(batch) == samples) else batch


def mapped(function: Callable[[Tensor], Any], value: Any) -> Any:
    """Return a structure with a function of each tensor in it."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return {name: mapped(function, part) for name, part in value.items()}
    if not isinstance(value, list | tuple):
        return value
    parts = [mapped(function, part) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
