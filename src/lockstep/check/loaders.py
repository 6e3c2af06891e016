"""The user's loaders for a stock Trainer: batches of the wanted size, and shuffles that are the same on any ranks."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

from lockstep.base.random_state import preserve_generators, seeded
from lockstep.check.probe import sample_hashes
from lockstep.plan.targets.kinds import overrides, replace_method


class SliceOfRank(DistributedSampler[Any]):
    """Every W-th index of a sampler. A Trainer replaces no DistributedSampler."""

    def __init__(self, sampler: Any) -> None:
        super().__init__(sampler, dist.get_world_size(), dist.get_rank(), shuffle=False)
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.sampler), self.rank, None, self.num_replicas)


def adapt(owner: Any, seed: int, *arguments: Any) -> None:
    """Replace the loaders of a module or data module by adapted ones, which are created alike on every rank."""
    for name in ("train_dataloader", "val_dataloader"):
        if overrides(owner, name):
            stage = name.partition("_")[0]
            replace_method(owner, name, lambda create, stage=stage: adapted(seeded(seed, create), stage, *arguments))


def adapted(loader: Any, stage: str, size: int, world: int, workers: int, facts: dict[str, Any], aligns: bool) -> Any:
    """Return a plain loader with other batches and workers; another object is returned as it is.

    facts: to note some of training's. aligns: give ranks their shares of the order in one process.
    """
    if isinstance(loader, list | tuple):
        return [adapted(each, stage, size, world, workers, facts, aligns) for each in loader]
    if stage == "train":
        facts |= facts_of(loader, size)
    if type(loader) is not DataLoader:
        return loader
    batches: dict[str, Any] = {"batch_size": size, "sampler": loader.sampler, "drop_last": loader.drop_last}
    if isinstance(loader.dataset, IterableDataset):
        del batches["sampler"]
    elif type(loader.sampler) is RandomSampler and world == 1:  # as a Trainer shuffles for several ranks
        batches["sampler"] = DistributedSampler(loader.dataset, 1, 0, shuffle=stage == "train")
    elif (
        aligns and world > 1 and stage == "train" and not isinstance(loader.sampler, RandomSampler | DistributedSampler)
    ):
        batches["sampler"] = SliceOfRank(loader.sampler)
    if loader.batch_size is None:
        batch_sampler = loader.batch_sampler
        batches = (
            {"batch_size": None, "sampler": loader.sampler}
            if batch_sampler is None
            else {"batch_sampler": batch_sampler}
        )
    generator = loader.generator
    if stage == "val" and generator is None:  # each start of an iteration would draw from training's
        generator = torch.Generator()
    count = workers if stage == "train" and loader.num_workers else 0
    return DataLoader(
        loader.dataset,
        **batches,
        num_workers=count,
        collate_fn=loader.collate_fn,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context if count else None,
        generator=generator,
    )


def facts_of(loader: Any, size: int) -> dict[str, Any]:
    """Return the kind of order that a loader has, whether it shuffles, and whether its batches can have the size."""
    sampler, batch_sampler = getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)
    kinds = {SequentialSampler: "sequential", RandomSampler: "random"}
    order = (
        "stream" if isinstance(getattr(loader, "dataset", None), IterableDataset) else kinds.get(type(sampler), "own")
    )
    batch = getattr(loader, "batch_size", None) or getattr(batch_sampler, "batch_size", None)
    plain = type(loader) is DataLoader and loader.batch_size is not None
    holders = [each for each in holders_of(loader) if callable(getattr(each, "set_epoch", None))]
    shuffles = any(getattr(each, "shuffle", True) is not False for each in holders) or any(
        isinstance(each, RandomSampler) for each in holders_of(loader)
    )
    return {
        "order": order,
        "sampler_given": type(sampler).__name__,
        "batch": size if plain else batch,
        "shuffles": shuffles,
        "varies": varies(loader),
        "workers": getattr(loader, "num_workers", 0),
    }


def varies(loader: Any) -> bool:
    """Whether a sample is another each time it is read."""
    dataset: Any = getattr(loader, "dataset", None)
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        return False
    with preserve_generators(), suppress(Exception):  # of a dataset with other keys
        return sample_hashes([dataset[0]]) != sample_hashes([dataset[0]])
    return False


def holders_of(loader: Any) -> Iterator[Any]:
    """Yield what decides the order of a loader: samplers and the dataset, and the attributes of these."""
    for each in (getattr(loader, name, None) for name in ("sampler", "batch_sampler", "dataset")):
        if each is not None:
            yield each
            yield from (value for value in getattr(each, "__dict__", {}).values() if hasattr(value, "set_epoch"))
