"""Checks of the first batch: a loss would broadcast a wrong shape, or fail far from the cause."""

from collections.abc import Mapping
from math import prod
from typing import Any

from torch import Tensor

from lockstep.config_error import ConfigError, require


def pair_of(batch: Any) -> tuple[Tensor, Tensor]:
    """Return the inputs and targets of a batch; raise unless it has both."""
    if isinstance(batch, list | tuple) and len(batch) == 2 and all(isinstance(each, Tensor) for each in batch):
        return batch[0], batch[1]
    if isinstance(batch, Mapping):
        names = ", ".join(map(str, batch))
        raise ConfigError(f"data: a batch is a mapping of {names}; write data.input_key=KEY data.target_key=KEY.")
    parts = (
        ", ".join(type(each).__name__ for each in batch) if isinstance(batch, list | tuple) else type(batch).__name__
    )
    raise ConfigError(f"data: a batch is ({parts}); expected a pair of tensors, inputs and targets.")


def check_classes(logits: Any, targets: Tensor, num_classes: int, ignore_index: int | None = None) -> None:
    """Raise unless there are logits (batch, classes or more, …) for classes (batch, …) below `num_classes`."""
    if targets.is_floating_point():
        raise ConfigError(
            "model: the targets of the data are real numbers, and a Classifier needs classes; write "
            "model._target_=lockstep.models.Regressor."
        )
    shape, batch = _shape(logits), tuple(targets.shape)
    if len(shape) < 2 or shape[:1] + shape[2:] != batch or shape[1] < num_classes:
        expected = ", ".join(map(str, (batch[0], f"{num_classes} or more", *batch[1:])))
        raise _wrong_shape(logits, f"({expected})")
    counted = targets if ignore_index is None else targets[targets != ignore_index]
    highest = int(counted.max()) if counted.numel() else 0
    key, reason = "model.num_classes", f"the data has a target of class {highest}, counted from 0"
    require(highest < num_classes, key, num_classes, reason, f"{key}={highest + 1} or more")


def check_numbers(outputs: Any, targets: Tensor) -> None:
    """Raise unless there are as many outputs as real targets, in the same shape."""
    if not targets.is_floating_point():
        raise ConfigError(
            "model: the targets of the data are whole numbers, and a Regressor needs real ones; write "
            "model._target_=lockstep.models.Classifier."
        )
    if _shape(outputs) != tuple(targets.shape):
        raise _wrong_shape(outputs, str(tuple(targets.shape)))


def check_inputs(inputs: Tensor) -> None:
    """Raise unless the inputs are real numbers, before a net fails in a layer."""
    if not inputs.is_floating_point():
        raise ConfigError(
            "data: its inputs are whole numbers, and an Autoencoder returns real ones; write data of real numbers."
        )


def check_reconstruction(outputs: Any, inputs: Tensor) -> None:
    """Raise unless there are as many outputs as inputs, in any shape."""
    shape = _shape(outputs)
    if len(shape) < 2 or shape[0] != len(inputs) or prod(shape) != inputs.numel():
        raise _wrong_shape(outputs, f"({len(inputs)}, …) with {prod(inputs.shape[1:])} numbers a sample")


def check_sequences(tokens: Tensor) -> None:
    """Raise unless there are whole numbers (batch, length), before a net looks them up in a table."""
    if tokens.is_floating_point() or tokens.dim() != 2:
        raise ConfigError(
            "data: a LanguageModel needs sequences of whole numbers (batch, length), and bytes are taken "
            "for pixels; write data=text."
        )


def check_tokens(logits: Any, targets: Tensor) -> None:
    """Raise unless there are logits (batch, length, vocabulary) for tokens (batch, length)."""
    check_sequences(targets)
    if _shape(logits)[:-1] != tuple(targets.shape):
        raise _wrong_shape(logits, f"({', '.join(map(str, targets.shape))}, vocabulary)")


def _shape(outputs: Any) -> tuple[int, ...]:
    return tuple(outputs.shape) if isinstance(outputs, Tensor) else ()


def _wrong_shape(outputs: Any, expected: str) -> ConfigError:
    described = f"shape {_shape(outputs)}" if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
    return ConfigError(f"model.net: it returns {described}; expected {expected}.")
