"""Samples that are functions of (seed, epoch, sample): drawn alike in any process, batch and order."""

import multiprocessing
import os
import random
import signal
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lockstep.random_state import preserve_generators, watch_draws

Place = tuple[int, int]
"""An epoch, from 0, and the number of a sample in its split."""

PRESERVED = (
    "num_workers",
    "pin_memory",
    "timeout",
    "prefetch_factor",
    "multiprocessing_context",
)
"""Options of a user's DataLoader that are preserved."""


GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Seeded(Dataset[Any]):
    """Batches of a dataset by the places of their samples; `collate` makes a batch, but not of no samples.

    Seeding numpy's and Python's generators takes longer than many a sample. So it stops after a first batch that draws
    nothing from them, and begins again with the first batch that does, which is then made again. It is not the first
    batch that is made twice, since a data set may cache its samples. torch's generator is always seeded:
    `torch.initial_seed()` reads it without a draw.
    """

    def __init__(self, dataset: Any, collate: Callable[..., Any], seed: int) -> None:
        self.dataset, self.collate, self.seed = dataset, collate, seed
        self.draws: bool | None = None  # unknown before the first batch

    def __getitems__(self, places: Sequence[Place]) -> Any:
        """Return a batch, or None for no samples. The process's generators are preserved."""
        if not places:
            return None
        with preserve_generators() as have_drawn:
            if self.draws is False:
                batch = self._batch(places)
                self.draws = have_drawn()
                if not self.draws:
                    return batch
            return self._batch(places)

    def _batch(self, places: Sequence[Place]) -> Any:
        """Make a batch; see by the first one whether a sample or `collate` draws from numpy's or Python's generator."""
        samples, checks = [], []
        for epoch, sample in places:
            seed_sample(self.seed, epoch, sample, torch_only=self.draws is False)
            have_drawn = watch_draws() if self.draws is None else None
            samples.append(self.dataset[sample])
            if have_drawn is not None:
                checks.append(have_drawn())
        batch = self.collate(samples)
        if have_drawn is not None:
            self.draws = any(checks) or have_drawn()
        return batch


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
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)  # inherited by workers, see _init_worker
        try:
            return iter(self.loader)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _collated(batch: Any) -> Any:
    """Return a batch as it is, in place of a collate function: `Seeded` calls the user's."""
    return batch


def loader_options(loader: "DataLoader[Any]") -> dict[str, Any]:
    """Return a DataLoader's options; workers are forked by default, as in a script, though ranks have a fork server."""
    options = {name: getattr(loader, name) for name in PRESERVED}
    options["worker_init_fn"] = partial(_init_worker, loader.worker_init_fn)
    if options["num_workers"] and options["multiprocessing_context"] is None:
        options["multiprocessing_context"] = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    return options


def _init_worker(init: Callable[[int], None] | None, worker: int) -> None:
    """Leave the process group: at a signal to it the rank stops in an orderly way, and needs its workers to do so."""
    os.setpgid(0, 0)
    while sys.platform != "darwin" and signal.sigtimedwait(GROUP_SIGNALS, 0) is not None:
        pass  # one that came before; torch's handler of SIGTERM, by which a rank ends its workers, stays
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    if init is not None:
        init(worker)
