"""A sample is made under random numbers of its own, in whatever process, batch and order it is asked for."""

import multiprocessing
import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from lockstep.random_state import numpy_state, preserve_generators

Place = tuple[int, int]
"""An epoch, from 0, and the number of a sample in its split."""


class Seeded(Dataset[Any]):
    """Batches of a dataset, each asked for by its samples' places; `collate` puts them together, but no empty ones.

    To seed numpy's and Python's generators takes longer than many a sample, so it ends with a first batch that draws
    nothing from them, and begins again with the first that does, which is then made anew: not the first batch of all,
    as a data set may keep what it has made. torch's is always seeded: `torch.initial_seed()` reads it without a draw.
    """

    def __init__(self, dataset: Any, collate: Callable[..., Any], seed: int) -> None:
        self.dataset, self.collate, self.seed = dataset, collate, seed
        self.draws: bool | None = None  # nobody knows before the first batch

    def __getitems__(self, places: Sequence[Place]) -> Any:
        """A batch, or None of no samples. The process's own generators go on as if nobody had drawn for it."""
        if not places:
            return None
        if self.draws is False:
            own, before = torch.get_rng_state(), (numpy_state(), random.getstate())
            made = self._made(places, seed_torch)
            torch.set_rng_state(own)
            self.draws = _drawn_since(before)
            if not self.draws:
                return made
            before[0].restore()
            random.setstate(before[1])
        if get_worker_info() is not None and self.draws:
            return self._made(places, seed_sample)
        with preserve_generators():
            return self._made(places, seed_sample)

    def _made(self, places: Sequence[Place], seed: Callable[[int, int, int], None]) -> Any:
        """Of a first batch it is seen whether any sample, or `collate`, draws from numpy's or Python's generator."""
        samples, drawn, before = [], False, None
        for place in places:
            drawn = drawn or _drawn_since(before)
            seed(self.seed, *place)
            before = (numpy_state(), random.getstate()) if self.draws is None else None
            samples.append(self.dataset[place[1]])
        made = self.collate(samples)
        if self.draws is None:
            self.draws = drawn or _drawn_since(before)
        return made


def _drawn_since(before: tuple[Any, Any] | None) -> bool:
    return before is not None and (not before[0].is_current() or random.getstate() != before[1])


def seed_of(seed: int, epoch: int, sample: int) -> int:
    """64 bits."""
    return int.from_bytes(blake2b(struct.pack("<qqq", seed, epoch, sample), digest_size=8).digest(), "little")


def seed_torch(seed: int, epoch: int, sample: int) -> None:
    """Its generator for the CPU alone."""
    torch.default_generator.manual_seed(seed_of(seed, epoch, sample) >> 1)


def seed_sample(seed: int, epoch: int, sample: int) -> None:
    """Seed torch's generator for the CPU, numpy's and Python's."""
    own = seed_of(seed, epoch, sample)
    torch.default_generator.manual_seed(own >> 1)
    np.random.seed(own & 0xFFFFFFFF)
    random.seed(own)


class SampleReader:
    """Batches of a map-style data set, read by torch's DataLoader; each sample is made under its own seed.

    It is the DataLoader's batch sampler itself, as workers may outlive an epoch.
    """

    def __init__(self, dataset: Any, collate: Callable[..., Any], seed: int, options: Mapping[str, Any]) -> None:
        """`options`: of the DataLoader, beside its order."""
        self.source = Seeded(dataset, collate, seed)
        self.slices: Sequence[Tensor] = []
        self.epoch = 0
        self.loader = DataLoader(
            self.source,
            batch_sampler=self,
            collate_fn=as_made,
            generator=torch.Generator(),  # the workers' seed would be drawn from the rank's own generator
            **with_context(options),
        )

    def __iter__(self) -> Iterator[list[Place]]:
        return ([(self.epoch, sample) for sample in ids.tolist()] for ids in self.slices)

    def batches(self, epoch: int, slices: Sequence[Tensor]) -> Iterator[Any]:
        """Yield a batch for each tensor of ids; None for no ids."""
        self.epoch, self.slices = epoch, slices
        return iter(self.loader)


def as_made(batch: Any) -> Any:
    """For a DataLoader, in place of a collate function: `Seeded` calls the user's."""
    return batch


def with_context(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a DataLoader whose workers are forked by default, as in a script; a rank itself has a fork server."""
    forks = options.get("num_workers") and options.get("multiprocessing_context") is None
    forks = forks and "fork" in multiprocessing.get_all_start_methods()
    return {**options, "multiprocessing_context": "fork"} if forks else {**options}
