"""Checks of batches and outputs: a loss would broadcast a wrong shape, or fail far from the cause."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lockstep.base.config_error import ConfigError, require


def pair_of(batch: Any) -> tuple[Tensor, Tensor]:
    """Return the inputs and targets of a batch; raise unless it has both."""
    if isinstance(batch, Mapping):
        names = ", ".join(map(str, batch))
        raise ConfigError(f"data: a batch is a mapping of {names}; write data.input_key=KEY data.target_key=KEY.")
    parts = batch if isinstance(batch, list | tuple) else [batch]
    if len(parts) != 2 or not all(isinstance(part, Tensor) for part in parts):
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise ConfigError(f"data: a batch is ({kinds}); expected a pair of tensors, inputs and targets.")
    return parts[0], parts[1]


def check_classes(logits: Any, targets: Tensor, num_classes: int, ignore_index: int | None = None) -> None:
    """Raise unless there are logits (batch, classes or more, …) for classes (batch, …) below `num_classes`."""
    if targets.is_floating_point():
        raise ConfigError(
            "model: the targets of the data are real numbers, and a Classifier needs classes; write "
            "model._target_=lockstep.models.Regressor."
        )
    shape, batch = shape_of(logits), tuple(targets.shape)
    if len(shape) < 2 or shape[:1] + shape[2:] != batch or shape[1] < num_classes:
        expected = ", ".join(map(str, (batch[0], f"{num_classes} or more", *batch[1:])))
        raise wrong_shape(logits, f"({expected})")
    counted = targets if ignore_index is None else targets[targets != ignore_index]
    highest = int(counted.max()) if counted.numel() else 0
    key, reason = "model.num_classes", f"the data has a target of class {highest}, counted from 0"
    require(highest < num_classes, key, num_classes, reason, f"{key}={highest + 1} or more")


def shape_of(outputs: Any) -> tuple[int, ...]:
    return tuple(outputs.shape) if isinstance(outputs, Tensor) else ()


def wrong_shape(outputs: Any, expected: str) -> ConfigError:
    """Return the error of a net whose outputs do not have the expected shape."""
    described = f"shape {shape_of(outputs)}" if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
    return ConfigError(f"model.net: it returns {described}; expected {expected}.")
