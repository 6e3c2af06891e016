"""The user's loaders for a stock Trainer: batches of the wanted size, and shuffles that are the same on any ranks."""

import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from lockstep.base.random_state import preserve_generators, seed_by, seeded
from lockstep.base.structures import map_leaves
from lockstep.check.sketches import sample_hashes
from lockstep.plan.targets.kinds import overrides, replace_method

ORDERS: dict[Any, str] = {SequentialSampler: "sequential", RandomSampler: "random", DistributedSampler: "divided"}
ORDERS |= dict.fromkeys((WeightedRandomSampler, SubsetRandomSampler), "drawn")
SHUFFLES = re.compile(r"randperm|shuffle\(|permut|\bsample\(|multinomial")


class Steady(Dataset[Any]):
    """A dataset whose samples draw the same whenever they are read."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        with preserve_generators():
            seed_by(int(index))
            return self.dataset[index]


def adapt(owner: Any, seed: int, **options: Any) -> None:
    """Replace the loaders of a module or data module by adapted ones, which are created alike on every rank."""

    def created(create: Any, trains: bool) -> Any:
        loaders = seeded(seed, create)
        return map_leaves(
            lambda each: adapted(each, trains, **options),
            lambda each: not isinstance(each, list | tuple | dict),
            loaders,
        )

    for name in ("train_dataloader", "val_dataloader"):
        if overrides(owner, name):
            replace_method(owner, name, partial(created, trains=name == "train_dataloader"))


def adapted(
    loader: Any, trains: bool, size: int, world: int, workers: int, facts: dict[str, Any], aligns: bool, calm: bool
) -> Any:
    """Return a plain loader with other batches and workers; another object is returned as it is.

    facts: to note some of training's. aligns: read in order, whatever the sampler. calm: a sample draws the same each
    time.
    """
    dataset: Any = getattr(loader, "dataset", None)
    batch_sampler = getattr(loader, "batch_sampler", None)
    is_plain, is_stream = type(loader) is DataLoader, isinstance(dataset, IterableDataset)
    given = batch_sampler if type(batch_sampler) is BatchSampler else loader
    sampler, has_batches = getattr(given, "sampler", None), is_plain and loader.batch_size is None and given is loader
    if calm and is_plain and not is_stream:
        dataset = Steady(dataset)
    aligns = aligns and trains and is_plain and not is_stream
    if trains:
        has_size = is_plain and (aligns or not has_batches)
        order = ORDERS.get(type(sampler), "own") if isinstance(loader, DataLoader) else "other"
        order = "own" if has_batches and batch_sampler is not None else "stream" if is_stream else order
        facts |= {
            "order": order,
            "sampler_given": type(sampler).__name__,
            "shuffles": any(map(shuffles, holders_of(loader))),
            "workers": getattr(loader, "num_workers", 0),
            "varies": varies(dataset, getattr(loader, "collate_fn", list)),
            "has_batches": has_batches,
            "batch": size if has_size else getattr(batch_sampler if has_batches else loader, "batch_size", None),
        }
    if not is_plain:
        return loader
    batches: dict[str, Any] = {"batch_size": size, "sampler": sampler, "drop_last": given.drop_last}
    if is_stream:
        del batches["sampler"]
    elif aligns:
        rank = dist.get_rank() if world > 1 else 0
        batches["sampler"] = DistributedSampler(dataset, world, rank, shuffle=False)
    elif has_batches:
        batches = {"batch_sampler": batch_sampler} if batch_sampler else {"batch_size": None, "sampler": sampler}
    elif type(sampler) is RandomSampler and world == 1:  # as a Trainer shuffles for several ranks
        batches["sampler"] = DistributedSampler(loader.dataset, 1, 0, shuffle=trains)
    count = workers if trains and loader.num_workers else 0
    return DataLoader(
        dataset,
        **batches,
        num_workers=count,
        collate_fn=loader.collate_fn,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context if count else None,
        # each start of a validation's iteration would draw from training's
        generator=loader.generator or (None if trains else torch.Generator()),
    )


def holders_of(loader: Any) -> Iterator[Any]:
    """Yield what decides the order of a loader: samplers and the dataset, and the attributes of these."""
    for each in (getattr(loader, name, None) for name in ("sampler", "batch_sampler", "dataset")):
        if each is not None:
            yield each
            yield from (value for value in getattr(each, "__dict__", {}).values() if isinstance(value, Sampler))


def shuffles(holder: Any) -> bool:
    """Whether a sampler or a stream shuffles: one of the user's own by its source."""
    if isinstance(holder, RandomSampler):
        return True
    if callable(getattr(holder, "set_epoch", None)) and getattr(holder, "shuffle", True) is not False:
        return True
    is_custom = not type(holder).__module__.startswith(("torch.", "lightning."))
    with suppress(AttributeError, OSError, TypeError):
        return is_custom and SHUFFLES.search(inspect.getsource(type(holder).__iter__)) is not None
    return False


def varies(dataset: Any, collate: Any) -> bool:
    """Whether a batch of one sample is another each time it is read."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        return False
    with preserve_generators(), suppress(Exception):  # of a dataset with other keys
        return sample_hashes(collate([dataset[0]])) != sample_hashes(collate([dataset[0]]))
    return False
