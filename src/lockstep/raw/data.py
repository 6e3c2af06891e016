"""This rank's share of each global batch: which samples, in which order, and how they are read.

Epoch e of n samples is `torch.randperm(n)` under seed + e, if the user's DataLoader shuffles. Batch k is positions
k·B … (k+1)·B of it, of which rank r of W takes r, r + W, r + 2W, … So the samples of a step are the same for any W.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data as td
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor

from lockstep.base.config_error import ConfigError, require
from lockstep.base.structures import samples_left
from lockstep.plan.targets.kinds import overrides
from lockstep.raw.random_state import generators, preserved_generators, seed_by

if TYPE_CHECKING:
    from lockstep.raw.trainer import Trainer


@dataclass
class Share:
    """The share of one rank in a global batch.

    batch: this rank's samples, collated. A rank that has none computes another's sample with weight 0.
    ids: of this rank's samples. total: samples of the global batch. step_total: of all batches of the optimizer step.
    """

    batch: Any
    ids: Tensor
    total: int
    step_total: int
    is_last: bool


class Loader:
    """One rank's view of a user's DataLoader.

    is_stream: of an IterableDataset. size: of a global batch. limit: the number of batches of an epoch, or their share.
    smallest: samples that a batch has at least, in an evaluation. fixed: every epoch is the first.
    """

    def __init__(self, loader: Any, trainer: "Trainer", stage: str, smallest: int) -> None:
        config, self.loader, self.rank, self.world = trainer.config, loader, trainer.global_rank, trainer.world_size
        self.trains, self.seed, self.limit = stage == "train", config.seed, config.trainer[f"limit_{stage}_batches"]
        self.fixed, self.smallest = self.trains and config.trainer.overfit_batches > 0, 1 if self.trains else smallest
        iterators = "__iter__", "_get_iterator"  # a derived class may have its own
        is_plain = all(getattr(type(loader), name, None) is getattr(td.DataLoader, name) for name in iterators)
        self.is_stream = is_plain and isinstance(loader.dataset, td.IterableDataset)
        source = loader if self.is_stream or not is_plain else loader.batch_sampler
        fits = source.batch_size and not loader.num_workers if self.is_stream else type(source) is td.BatchSampler
        if not fits:
            reads = "a DataLoader with a batch_size, and an IterableDataset without workers"
            raise ConfigError(f"data: engine=raw reads {reads}; write engine=lightning.")
        self.drop_last: bool = source.drop_last or (self.trains and config.drop_last)
        self.size: int = config.batch_size if self.trains else source.batch_size
        self.drawn: tuple[int, list[int]] = -1, []

    def limited(self, batches: int) -> int:
        return min(self.limit, batches) if isinstance(self.limit, int) else int(self.limit * batches)

    @cached_property
    def count(self) -> int:
        """Return the number of batches of an epoch; 0 if the data has no length."""
        try:
            return len(self.batches(0)) if not self.is_stream else self.limited(self.parts(len(self.loader.dataset)))
        except (TypeError, NotImplementedError):
            return 0

    def parts(self, samples: int) -> int:
        return samples // self.size if self.drop_last else -(-samples // self.size)

    def batches(self, epoch: int) -> Sequence[Tensor]:
        """Return the sample ids of each global batch."""
        order = self.order(self.loader.batch_sampler.sampler, epoch)
        order = order[: self.limited(self.parts(len(order))) * self.size]
        return order.split(max(self.size, self.smallest)) if len(order) else ()  # type: ignore[no-untyped-call]

    def order(self, sampler: Any, epoch: int) -> Tensor:
        samples, is_distributed = len(self.loader.dataset), isinstance(sampler, td.DistributedSampler)
        kind = type(sampler) if getattr(sampler, "data_source", None) is self.loader.dataset else None
        if self.fixed or kind is td.SequentialSampler or (is_distributed and not sampler.shuffle):
            return torch.arange(samples)
        permutes = kind is td.RandomSampler and not sampler.replacement and sampler.num_samples == samples
        if permutes or is_distributed:
            return torch.randperm(samples, generator=torch.Generator().manual_seed(self.seed + epoch))
        return torch.as_tensor(self.draw(sampler, epoch), dtype=torch.int64)

    def draw(self, sampler: Any, epoch: int) -> list[int]:
        """Return what a sampler of the user's draws in an epoch, once, under seed + epoch."""
        if self.drawn[0] != epoch:
            with preserved_generators(self.seed + epoch):
                if isinstance(generator := getattr(sampler, "generator", None), torch.Generator):
                    generator.manual_seed(self.seed + epoch)
                if hasattr(sampler, "set_epoch"):
                    sampler.set_epoch(epoch)
                self.drawn = epoch, list(sampler)
        return self.drawn[1]

    def shares(self, epoch: int, accumulate: int = 1) -> Iterator[Share]:
        """Yield this rank's share of each batch of an epoch; in an evaluation of those in which it has samples."""
        epoch = epoch if self.trains and not self.fixed else 0
        shares = self.of_stream if self.is_stream else self.of_samples
        reason, hint = "engine=raw trains with all samples, and a collate function drops some", "engine=lightning"
        for share in shares(epoch, accumulate):
            samples = len(share.ids)
            if self.trains or samples:
                fits = samples_left(share.batch, samples) == samples
                require(fits, "data", type(self.loader.dataset).__name__, reason, hint)
                yield share

    def of_samples(self, epoch: int, accumulate: int) -> Iterator[Share]:
        batches = self.batches(epoch)
        for number, ids in enumerate(batches):
            first, mine = number - number % accumulate, ids[self.rank :: self.world]
            step_total = sum(map(len, batches[first : first + accumulate]))
            batch = self.read(epoch, mine if len(mine) else ids[:1])
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
        """Every rank reads all samples of an iterable, under (seed, epoch, -1), and takes its part of each batch."""
        most = self.limit if isinstance(self.limit, int) else None if self.limit == 1.0 else self.count
        end, batches = 0, chain(islice(self.read_stream(epoch), most), [[]])
        for samples, following in pairwise(batches):
            ids = torch.arange(end, end + len(samples))[self.rank :: self.world]
            batch = self.loader.collate_fn(samples[self.rank :: self.world] or samples[:1])
            yield Share(batch, ids, len(samples), len(samples) * accumulate, is_last=not following)
            end += len(samples)

    def read_stream(self, epoch: int) -> Iterator[list[Any]]:
        """Yield the samples of each batch, drawn by generators that go on where the last batch left them."""
        with preserved_generators():
            seed_by(self.seed, epoch, -1)
            samples, states = iter(self.loader.dataset), generators()
        while True:
            with preserved_generators(states=states):
                batch, states = [*islice(samples, self.size)], generators()
            if len(batch) < (self.size if self.drop_last else 1):
                return
            yield batch


def loaders_of(trainer: "Trainer", stage: str) -> list[Loader]:
    """Return this rank's views of the loaders of a stage, if it runs."""
    owner, name, returned = trainer.owners[0], f"{stage}_dataloader", None
    if stage not in trainer.loaders:
        if trainer.runs(stage):
            with trainer.as_one_process():
                returned = getattr(owner, name)()
        setattr(trainer, name if stage == "train" else f"{name}s", returned)
        several = [*returned.values()] if isinstance(returned, Mapping) else returned
        several = several if isinstance(several, list | tuple) else [several] if several is not None else ()
        smallest = getattr(owner, "evaluation_batch", 1)
        trainer.loaders[stage] = [Loader(each, trainer, stage, smallest) for each in several]
    loaders: list[Loader] = trainer.loaders[stage]
    return loaders


def transfer(trainer: "Trainer", batch: Any, loader: int = 0) -> Any:
    """Move a batch by the hooks of the data module or the module; with 64-true floats become float64 first."""
    if trainer.dtype == torch.float64:
        batch = apply_to_collection(batch, Tensor, lambda each: each.double() if each.is_floating_point() else each)
    for name in ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer"):
        owner = next((each for each in trainer.owners if overrides(each, name)), trainer.module)
        device = (trainer.device,) if name.startswith("transfer") else ()
        batch = getattr(owner, name)(batch, *device, loader)
    return batch


def arguments_for(method: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """Return those of batch, batch_idx and dataloader_idx that a step of the user's takes."""
    kinds = [parameter.kind for parameter in inspect.signature(method).parameters.values()]
    takes_all = inspect.Parameter.VAR_POSITIONAL in kinds
    return arguments if takes_all else arguments[: sum(kind in (0, 1) for kind in kinds)]
