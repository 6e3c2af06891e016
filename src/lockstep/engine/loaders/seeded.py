"""Samples that are functions of (seed, epoch, sample): drawn alike in any process, batch and order."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lockstep.base.random_state import preserve_generators, seed_by

Place = tuple[int, int]  # an epoch, from 0, and the number of a sample in its split

GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
PRESERVED = ("num_workers", "pin_memory", "timeout", "prefetch_factor", "multiprocessing_context")
"""Options of a user's DataLoader that are preserved."""


class Seeded(Dataset[Any]):
    """Batches of a dataset by the places of their samples; `collate` makes a batch, but not of no samples."""

    def __init__(self, dataset: Any, collate: Callable[..., Any], seed: int) -> None:
        self.dataset, self.collate, self.seed = dataset, collate, seed

    def __getitems__(self, places: Sequence[Place]) -> Any:
        """Return a batch, or None for no samples; `collate` draws under the seed of the last sample."""
        if not places:
            return None
        samples = []
        with preserve_generators():
            try:
                for epoch, sample in places:
                    seed_by(self.seed, epoch, sample)
                    samples.append(self.dataset[sample])
                return self.collate(samples)
            except StopIteration as error:
                raise RuntimeError("StopIteration, raised while samples are read, would end the epoch") from error


class Places:
    """The places of each batch of an epoch: the batch sampler of a DataLoader whose workers may outlive the epoch."""

    epoch = 0
    slices: Iterable[Tensor] = ()

    def __iter__(self) -> Iterator[list[Place]]:
        return ([(self.epoch, sample) for sample in ids.tolist()] for ids in self.slices)


def seeded_loader(loader: "DataLoader[Any]", places: Places, seed: int) -> "DataLoader[Any]":
    """Return a loader of the same samples by their places, each drawn under its own seed."""
    return DataLoader(
        Seeded(loader.dataset, loader.collate_fn, seed),
        batch_sampler=places,
        collate_fn=_collated,
        generator=torch.Generator(),  # the workers' seed would be drawn from the rank's own generator
        persistent_workers=loader.persistent_workers,
        **loader_options(loader),
    )


def _collated(batch: Any) -> Any:
    """Return a batch as it is, in place of a collate function: `Seeded` calls the user's."""
    return batch


def loader_options(loader: "DataLoader[Any]") -> dict[str, Any]:
    """Return a DataLoader's options; workers are forked by default, as in a script, though ranks have a fork server."""
    options = {name: getattr(loader, name) for name in PRESERVED}
    options["worker_init_fn"] = partial(_init_worker, loader.worker_init_fn)
    if options["num_workers"] and options["multiprocessing_context"] is None:
        options["multiprocessing_context"] = "fork"
    return options


def start_workers(loader: "DataLoader[Any]") -> Iterator[Any]:
    """Return the iterator of a loader with `loader_options`: its workers start with a mask, see `_init_worker`."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        return iter(loader)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _init_worker(init: Callable[[int], None] | None, worker: int) -> None:
    """Leave the process group: at a signal to it the rank stops in an orderly way, and needs its workers to do so."""
    os.setpgid(0, 0)
    while signal.sigtimedwait(GROUP_SIGNALS, 0) is not None:
        pass  # it came before; torch's handler of SIGTERM, by which a rank ends its workers, stays
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    if init is not None:
        init(worker)
