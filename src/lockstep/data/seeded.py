"""Samples that are functions of (seed, epoch, sample): drawn alike in any process, batch and order."""

import multiprocessing
import random
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lockstep.random_state import preserve_generators

Place = tuple[int, int]
"""An epoch, from 0, and the number of a sample in its split."""

PRESERVED = (
    "num_workers",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "prefetch_factor",
    "multiprocessing_context",
)
"""Options of a user's DataLoader that are preserved."""


class Seeded(Dataset[Any]):
    """Batches of a dataset by the places of their samples; `collate` makes a batch, but not of no samples.

    Seeding numpy's and Python's generators takes longer than many a sample. So it begins with the first batch that
    draws from them, which is then made again. torch's generator is always seeded: `torch.initial_seed()` reads it
    without a draw.
    """

    def __init__(self, dataset: Any, collate: Callable[..., Any], seed: int) -> None:
        self.dataset, self.collate, self.seed = dataset, collate, seed
        self.torch_only = True

    def __getitems__(self, places: Sequence[Place]) -> Any:
        """Return a batch, or None for no samples. The process's generators are preserved."""
        if not places:
            return None
        with preserve_generators() as numpy_or_python_drew:
            if self.torch_only:
                batch = self._batch(places)
                self.torch_only = not numpy_or_python_drew()
                if self.torch_only:
                    return batch
            return self._batch(places)

    def _batch(self, places: Sequence[Place]) -> Any:
        samples = []
        for epoch, sample in places:
            seed_sample(self.seed, epoch, sample, self.torch_only)
            samples.append(self.dataset[sample])
        return self.collate(samples)


def seed_sample(seed: int, epoch: int, sample: int, torch_only: bool = False) -> None:
    """Seed torch's generator for the CPU, and numpy's and Python's unless `torch_only`."""
    digest = blake2b(struct.pack("<qqq", seed, epoch, sample), digest_size=8).digest()
    sample_seed = int.from_bytes(digest, "little")
    torch.default_generator.manual_seed(sample_seed >> 1)
    if not torch_only:
        np.random.seed(sample_seed & 0xFFFFFFFF)
        random.seed(sample_seed)


class SampleReader:
    """Batches of a map-style data set, read by torch's DataLoader; each sample is drawn under its own seed.

    It is the DataLoader's batch sampler itself, as workers may outlive an epoch.
    """

    def __init__(self, dataset: Any, collate: Callable[..., Any], seed: int, options: Mapping[str, Any]) -> None:
        self.slices: Iterable[Tensor] = ()
        self.epoch = 0
        self.loader = DataLoader(
            Seeded(dataset, collate, seed),
            batch_sampler=self,
            collate_fn=_collated,
            generator=torch.Generator(),  # the workers' seed would be drawn from the rank's own generator
            **options,
        )

    def __iter__(self) -> Iterator[list[Place]]:
        return ([(self.epoch, sample) for sample in ids.tolist()] for ids in self.slices)

    def batches(self, epoch: int, slices: Iterable[Tensor]) -> Iterator[Any]:
        """Yield a batch for each tensor of ids; None for no ids."""
        self.epoch, self.slices = epoch, slices
        return iter(self.loader)


def _collated(batch: Any) -> Any:
    """Return a batch as it is, in place of a collate function: `Seeded` calls the user's."""
    return batch


def loader_options(loader: "DataLoader[Any]") -> dict[str, Any]:
    """Return a DataLoader's options; workers are forked by default, as in a script, though ranks have a fork server."""
    options = {name: getattr(loader, name) for name in PRESERVED}
    if options["num_workers"] and options["multiprocessing_context"] is None:
        options["multiprocessing_context"] = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    return options
