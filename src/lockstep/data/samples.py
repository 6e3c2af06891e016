"""Data sets whose samples are made one by one, and batches of any loader as a plain net takes them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from lockstep.config_error import ConfigError, require
from lockstep.data.seeded import Seeded
from lockstep.data.tensors import Batch, Split, as_float
from lockstep.schemas.task import Samples


@dataclass(frozen=True)
class Splits:
    """The data sets of the splits, of class Split if they are in memory; a split may be empty.

    loader: arguments of torch's DataLoader beside those that a plan has.
    samples: what a sample is for the task.
    outputs: that a net needs, of built-in data.
    """

    train: Any
    val: Any
    test: Any
    loader: Mapping[str, Any] = field(default_factory=dict)
    samples: Samples = "pairs"
    outputs: int = 0

    @property
    def datasets(self) -> Mapping[str, Any]:
        return {"train": self.train, "val": self.val, "test": self.test}

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.train.inputs.shape[1:])

    def first(self, dtype: torch.dtype) -> Tensor:
        """Return the first training sample as the net takes it: (1, *shape)."""
        if isinstance(self.train, Split):
            return self.train.as_float(self.train[torch.tensor([0])], dtype).inputs
        source = Seeded(self.train, self.loader.get("collate_fn", default_collate), seed=0)
        return as_batch(source.__getitems__([(0, 0)]), self.samples, dtype).inputs


def split_three(
    inputs: Tensor, targets: Tensor, val_size: int, test_size: int, outputs: int, mean: float = 0.0, std: float = 1.0
) -> Splits:
    """Return train, val and test: consecutive ranges of the rows, in this order."""
    sizes = [len(inputs) - val_size - test_size, val_size, test_size]
    pairs = zip(torch.split(inputs, sizes), torch.split(targets, sizes), strict=True)
    train, val, test = (Split(*pair, mean, std) for pair in pairs)
    return Splits(train, val, test, outputs=outputs)


def as_batch(batch: Any, samples: Samples, dtype: torch.dtype) -> Batch:
    """Return a batch of a user's loader, which is on its device, as a plain net takes it."""
    inputs, targets = pair_of(batch, samples)
    inputs, targets = as_float(Batch(inputs, targets_for_loss(targets)), dtype)
    return Batch(inputs, inputs if samples == "inputs" else targets)


def pair_of(batch: Any, samples: Samples) -> tuple[Tensor, Tensor]:
    tensors = [batch] if isinstance(batch, Tensor) else [*batch] if isinstance(batch, list | tuple) else []
    if len(tensors) in (1, 2) and all(isinstance(tensor, Tensor) for tensor in tensors):
        inputs, targets = tensors[0], tensors[-1]
        if samples == "inputs" or (samples == "any" and len(tensors) == 1):
            return inputs, inputs
        are_integers = not (inputs.is_floating_point() or targets.is_floating_point())
        if samples == "sequences" and are_integers and inputs.dim() == 2 and inputs.shape == targets.shape:
            if len(tensors) == 2:
                return inputs.long(), targets.long()
            if inputs.shape[1] > 1:
                return inputs[:, :-1].long(), inputs[:, 1:].long()
        if samples in ("pairs", "any", "module") and len(tensors) == 2:
            return inputs, targets
    if isinstance(batch, Mapping):
        raise ConfigError(
            "data: a batch of it is a mapping, and nothing says which keys a plain net takes; write data.inputs=KEY "
            f"data.targets=KEY, of {', '.join(map(str, batch))}."
        )
    described = [f"{type(tensor).__name__} {tuple(getattr(tensor, 'shape', ()))}" for tensor in tensors]
    names = ", ".join(described) or type(batch).__name__
    raise ConfigError(f"data: a batch of it is ({names}), and {EXPECTED.get(samples, EXPECTED['pairs'])}.")


EXPECTED = {
    "pairs": "a plain net is trained on tensors; write a dataset whose samples are (input, target)",
    "inputs": "a net that gives back its input is trained on tensors; write a dataset whose samples begin with one",
    "sequences": "a language is modelled by sequences of whole numbers (batch, length); write a dataset whose samples "
    "are such, or pairs of such and the numbers that come next",
}
"""By the samples that a task takes, if not any: the end of the message about others."""


def targets_for_loss(targets: Tensor) -> Tensor:
    """Return real numbers as (batch, outputs), so that one per sample is not compared with every output; classes as
    int64.
    """
    if targets.is_floating_point():
        return targets[:, None] if targets.dim() == 1 else targets
    return targets.long().flatten() if targets.dim() == 2 and targets.shape[1] == 1 else targets.long()


def keys_of(choice: Any) -> dict[str, str]:
    """Return the keys of samples that are mappings by the option that names them, the key of the inputs first."""
    options = {"data.inputs": "input_key", "data.targets": "target_key"}
    return {option: key for option, name in options.items() if (key := getattr(choice, name, None)) is not None}


def values_of(sample: Any, keys: Mapping[str, str]) -> tuple[Any, ...]:
    """Return the named values of a sample, or of a batch: the input alone if it is its own target."""
    names = [*sample] if isinstance(sample, Mapping) else []
    for option, key in keys.items():
        reason = f"a sample has no such key: it is a {type(sample).__name__}"
        require(key in names, option, key, reason, f"one of {', '.join(map(str, names)) or 'none'}")
    return tuple(sample[key] for key in keys.values())


def values_of_batch(batch: Any, keys: Mapping[str, str]) -> list[Any]:
    """Return the named values of a batch; lists of numbers, which torch collates by place, as one tensor."""
    return [torch.stack(value, 1) if isinstance(value, list) else value for value in values_of(batch, keys)]


def collate_values(keys: Mapping[str, str], function: Callable[..., Any], samples: Sequence[Any]) -> Any:
    """Collate samples by a function; torch's own gets the named values alone, as others may not be collatable."""
    if function is not default_collate:
        return values_of_batch(function(samples), keys)
    pairs = [values_of(sample, keys) for sample in samples]
    return default_collate(
        [tuple(torch.tensor(value) if isinstance(value, list) else value for value in pair) for pair in pairs]
    )
