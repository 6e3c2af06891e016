"""Checks of batches and outputs: a loss would broadcast a wrong shape, or fail far from the cause."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lockstep.base.config_error import ConfigError, require


def pair_of(batch: Any) -> tuple[Tensor, Tensor]:
    """Return the inputs and targets of a batch; raise unless it has both."""
    parts = batch if isinstance(batch, list | tuple) else [batch]
    if len(parts) != 2 or not all(isinstance(part, Tensor) for part in parts):
        kinds = ", ".join(map(str, batch) if isinstance(batch, Mapping) else (type(part).__name__ for part in parts))
        raise ConfigError(
            f"data: a batch has {kinds}; write a Dataset of pairs, or a function data.loader.collate_fn that returns "
            "two tensors, inputs and targets."
        )
    return parts[0], parts[1]


def check_classes(logits: Any, targets: Tensor, num_classes: int) -> None:
    """Raise unless there are logits (batch, classes or more, …) for classes (batch, …) from 0 below `num_classes`."""
    if targets.is_floating_point():
        raise ConfigError(
            "model: the targets of the data are real numbers, and a Classifier needs classes; write "
            "model._target_=lockstep.models.Regressor."
        )
    shape, (batch, *places) = shape_of(logits), targets.shape
    if len(shape) < 2 or shape[:1] + shape[2:] != targets.shape or shape[1] < num_classes:
        raise wrong_shape(logits, ", ".join(map(str, (batch, f"{num_classes} or more", *places))))
    if targets.numel():
        lowest, highest = int(targets.min()), int(targets.max())
        reason = f"the data has targets from {lowest} to {highest}, and classes count from 0"
        hint = f"model.num_classes={highest + 1} or more" if lowest >= 0 else "other data"
        require(lowest >= 0 and highest < num_classes, "model.num_classes", num_classes, reason, hint)


def shape_of(outputs: Any) -> tuple[int, ...]:
    return tuple(outputs.shape) if isinstance(outputs, Tensor) else ()


def wrong_shape(outputs: Any, expected: str) -> ConfigError:
    """Return the error of a net whose outputs do not have the expected shape."""
    described = f"shape {shape_of(outputs)}" if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
    return ConfigError(f"model.net: it returns {described}; expected ({expected}).")
