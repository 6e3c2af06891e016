"""Data whose samples are made one by one: a map-style Dataset of the user's own, read by torch's DataLoader.

Each sample is made under random numbers of its own, so an augmentation is a function of (seed, epoch, sample): the same
for any number of ranks and workers, and after a resume.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from lockstep.config_error import ConfigError
from lockstep.data.seeded import Place, Seeded, as_made, workers_context
from lockstep.data.tensors import Batch, as_float
from lockstep.sampler import ShardSampler
from lockstep.schemas.task import Samples


@dataclass
class SampleSplit:
    """One split: the dataset as the user made it."""

    dataset: Any

    def __len__(self) -> int:
        return len(self.dataset)


@dataclass
class SampleData:
    """Train, validation and test split. `loader`: arguments of torch's DataLoader beside those that a plan has.

    samples: what a sample is.
    """

    train: SampleSplit
    val: SampleSplit
    test: SampleSplit
    outputs: int
    shape: tuple[int, ...]
    seed: int
    loader: Mapping[str, Any] = field(default_factory=dict)
    samples: Samples = "pairs"

    def first(self, dtype: torch.dtype) -> Tensor:
        """The first training sample as the net takes it: (1, *shape)."""
        source = Seeded(self.train.dataset, self.loader.get("collate_fn", default_collate), self.seed)
        return as_batch(source.__getitems__([(0, 0)]), self.samples, dtype).inputs


@dataclass
class Streams:
    """IterableDatasets, by train, val and test; map-style Datasets may stand beside them."""

    splits: Mapping[str, Any]
    loader: Mapping[str, Any]


class RankLoader:
    """One rank's share of every global batch, in the order of its sampler's epoch, on a device.

    `sampler` and `batch_sampler` are a DataLoader's names: Lightning calls `set_epoch` of these.
    """

    batch_sampler = None

    def __init__(self, data: Any, split: Any, sampler: ShardSampler, device: torch.device, dtype: torch.dtype) -> None:
        self.data, self.split, self.sampler, self.device, self.dtype = data, split, sampler, device, dtype

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return len(self.sampler)


class SampleLoader(RankLoader):
    """Reads samples by torch's DataLoader."""

    def __iter__(self) -> Iterator[Batch]:
        options = dict(self.data.loader)
        if options.get("num_workers"):
            options.setdefault("multiprocessing_context", workers_context())
        asked: deque[Tensor] = deque()
        source = Seeded(self.split.dataset, options.pop("collate_fn", default_collate), self.data.seed)
        batches = DataLoader(
            source,
            batch_sampler=_Places(self.sampler, asked),
            collate_fn=as_made,
            generator=torch.Generator(),  # the workers' seed would be drawn from the rank's own generator
            **options,
        )
        for made in batches:
            ids = asked.popleft()
            if made is not None:
                inputs, targets = pair_of(made, self.data.samples)
            else:  # a rank without samples of a ragged batch: the shapes alone
                inputs, targets = (part[:0] for part in pair_of(source.__getitems__([(0, 0)]), self.data.samples))
            yield self._ready(inputs, targets, ids)

    def _ready(self, inputs: Tensor, targets: Tensor, ids: Tensor) -> Batch:
        there = inputs.to(self.device, non_blocking=True), targets_for_loss(targets).to(self.device, non_blocking=True)
        return _for_net(Batch(*there, ids), self.data.samples, self.dtype)


class _Places:
    """The sampler's batches as lists of places. `asked` gets the ids of each, to go with what comes back."""

    def __init__(self, sampler: ShardSampler, asked: deque[Tensor]) -> None:
        self.sampler, self.asked = sampler, asked

    def __iter__(self) -> Iterator[list[Place]]:
        epoch = 0 if self.sampler.seed is None else self.sampler.epoch  # an evaluation is the same each time
        for ids in self.sampler:
            self.asked.append(ids)
            yield [(epoch, sample) for sample in ids.tolist()]


def as_batch(made: Any, samples: Samples, dtype: torch.dtype) -> Batch:
    """A batch of a user's loader, which is on its device, as a plain net takes it; which samples it has is not told.

    Raises:
        ConfigError: its samples are something else.
    """
    inputs, targets = pair_of(made, samples)
    return _for_net(Batch(inputs, targets_for_loss(targets), torch.arange(0)), samples, dtype)


def _for_net(batch: Batch, samples: Samples, dtype: torch.dtype) -> Batch:
    whole = as_float(batch, dtype)
    return Batch(whole.inputs, whole.inputs, whole.ids) if samples == "inputs" else whole


def pair_of(batch: Any, samples: Samples) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a batch.

    Raises:
        ConfigError: its samples are something else.
    """
    parts = [batch] if isinstance(batch, Tensor) else batch if isinstance(batch, list | tuple) else []
    if len(parts) in (1, 2) and all(isinstance(part, Tensor) for part in parts):
        inputs = parts[0]
        if samples == "inputs":
            return inputs, inputs
        if samples == "sequences" and _are_tokens(parts):
            return (
                (inputs.long(), parts[1].long()) if len(parts) == 2 else (inputs[:, :-1].long(), inputs[:, 1:].long())
            )
        if samples in ("pairs", "any", "theirs") and len(parts) == 2:
            return inputs, parts[1]
        if samples == "any":
            return inputs, inputs
    if isinstance(batch, Mapping):
        raise ConfigError(
            "data: a batch of it is a mapping, and nothing says which keys a plain net takes; write data._inputs_=KEY "
            f"data._targets_=KEY, of {', '.join(map(str, batch))}."
        )
    names = ", ".join(_named(part) for part in parts)
    held = f"({names})" if isinstance(batch, list | tuple) else names or type(batch).__name__
    raise ConfigError(f"data: a batch of it is {held}, and {WANTED[samples]}.")


WANTED = {
    "pairs": "a plain net is trained on pairs of tensors; write a dataset whose samples are (input, target)",
    "any": "a plain net is trained on tensors; write a dataset whose samples are (input, target)",
    "inputs": "a net that gives back its input is trained on tensors; write a dataset whose samples begin with one",
    "sequences": "a language is modelled by sequences of whole numbers (batch, length); write a dataset whose samples "
    "are such, or pairs of such and the numbers that come next",
    "theirs": "a plain net is trained on pairs of tensors; write a LightningModule for others",
}
"""By what samples are: what a batch of something else is told."""


def _are_tokens(parts: Sequence[Tensor]) -> bool:
    whole = all(part.dim() == 2 and not part.is_floating_point() for part in parts)
    return whole and parts[0].shape == parts[-1].shape and (len(parts) == 2 or parts[0].shape[1] > 1)


def _named(part: Any) -> str:
    return f"{type(part).__name__} {tuple(part.shape)}" if isinstance(part, Tensor) else type(part).__name__


def targets_for_loss(targets: Tensor) -> Tensor:
    """Real numbers as (batch, outputs), where one a sample would be compared with every output; classes as int64."""
    if targets.is_floating_point():
        return targets[:, None] if targets.dim() == 1 else targets
    return targets.long().flatten() if targets.dim() == 2 and targets.shape[1] == 1 else targets.long()
