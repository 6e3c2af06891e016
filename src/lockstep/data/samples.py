"""Data whose samples are made one by one: a map-style Dataset of the user's own, read by torch's DataLoader.

Each sample is made under random numbers of its own, so an augmentation is a function of (seed, epoch, sample): the same
for any number of ranks and workers, and after a resume.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from lockstep.config_error import ConfigError
from lockstep.data.seeded import SampleReader
from lockstep.data.tensors import Batch, as_float
from lockstep.schemas.task import Samples


@dataclass
class SampleData:
    """Train, validation and test data set. `loader`: arguments of torch's DataLoader beside those that a plan has.

    samples: what a sample is.
    """

    train: Any
    val: Any
    test: Any
    outputs: int
    shape: tuple[int, ...]
    seed: int
    loader: Mapping[str, Any] = field(default_factory=dict)
    samples: Samples = "pairs"

    def reader(self, dataset: Any) -> SampleReader:
        """Return a reader of one of the splits."""
        options = {**self.loader}
        return SampleReader(dataset, options.pop("collate_fn", default_collate), self.seed, options)

    def first(self, dtype: torch.dtype) -> Tensor:
        """The first training sample as the net takes it: (1, *shape)."""
        return as_batch(self.reader(self.train).source.__getitems__([(0, 0)]), self.samples, dtype).inputs


@dataclass
class Streams:
    """IterableDatasets, by train, val and test; map-style Datasets may stand beside them."""

    splits: Mapping[str, Any]
    loader: Mapping[str, Any]


def as_batch(made: Any, samples: Samples, dtype: torch.dtype) -> Batch:
    """A batch of a user's loader, which is on its device, as a plain net takes it; which samples it has is not told.

    Raises:
        ConfigError: its samples are something else.
    """
    inputs, targets = pair_of(made, samples)
    batch = as_float(Batch(inputs, targets_for_loss(targets), torch.arange(0)), dtype)
    return batch._replace(targets=batch.inputs) if samples == "inputs" else batch


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
        if samples in ("pairs", "any", "module") and len(parts) == 2:
            return inputs, parts[1]
        if samples == "any":
            return inputs, inputs
    if isinstance(batch, Mapping):
        raise ConfigError(
            "data: a batch of it is a mapping, and nothing says which keys a plain net takes; write data._inputs_=KEY "
            f"data.targets=KEY, of {', '.join(map(str, batch))}."
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
    "module": "a plain net is trained on pairs of tensors; write a LightningModule for others",
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
