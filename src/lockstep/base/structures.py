"""The tensors in nested structures, such as outputs of a net, and in its state."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor


def map_leaves(function: Callable[..., Any], is_leaf: Callable[[Any], bool], first: Any, *others: Any) -> Any:
    """Return `first` with each leaf replaced by the function of the leaves at the same place of all structures.

    Structures are nested mappings, lists, tuples and dataclasses; other objects stay.
    """
    if is_leaf(first):
        return function(first, *others)
    if isinstance(first, list | tuple):
        items = [map_leaves(function, is_leaf, *values) for values in zip(first, *others, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    if not is_structure(first):
        return first
    mapped: Any = copy.copy(first)  # its __init__ may take other arguments
    if isinstance(first, Mapping):
        for key in first:
            mapped[key] = map_leaves(function, is_leaf, first[key], *(other[key] for other in others))
    else:
        for name in (field.name for field in fields(first)):
            values = (getattr(structure, name) for structure in (first, *others))
            object.__setattr__(mapped, name, map_leaves(function, is_leaf, *values))
    return mapped


def is_structure(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple) or (is_dataclass(value) and not isinstance(value, type))


def map_tensors(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Return `first` with each tensor replaced by the function of the tensors at the same place of all structures."""
    return map_leaves(function, lambda value: isinstance(value, Tensor), first, *others)


def tensors_in(structure: Any) -> list[Tensor]:
    """Return the tensors of a structure, in their order."""
    tensors: list[Tensor] = []
    map_tensors(tensors.append, structure)
    return tensors


def samples_left(batch: Any, samples: int) -> int:
    """Return how many of so many samples a batch has: a collate function may drop some.

    Then its tensors and lists have one length, that is less; in time order the second dimension is of samples.
    """
    values = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else [batch]
    sized = [each for each in values if isinstance(each, list) or (isinstance(each, Tensor) and each.dim())]
    lengths = {len(each) for each in sized}
    in_time_order = all(samples in each.shape[1:2] for each in sized if isinstance(each, Tensor))
    are_samples = isinstance(batch, list) and len(batch) == samples  # and no (x, y) of two samples
    are_samples = are_samples and (samples > 3 or len({getattr(each, "shape", ()) for each in sized}) == 1)
    return samples if len(lengths) != 1 or are_samples or in_time_order else min(samples, *lengths)


def tensors_of(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a state_dict by name, without the extra state of layers, which may be any object."""
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def predictions_of(outputs: Any) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """Return predicted classes and targets, int64, in the outputs of a validation or test step, and scores of classes.

    Outputs are {"logits" or "preds": …, "targets": …}; scores are logits or probabilities (batch, classes, …), or None
    if the step returns classes. Return None if there are no predictions, or targets are no classes.
    """
    if not isinstance(outputs, Mapping):
        return None
    scores, targets = outputs.get("logits", outputs.get("preds")), outputs.get("targets")
    if not isinstance(scores, Tensor) or not isinstance(targets, Tensor) or targets.is_floating_point():
        return None
    if scores.shape == targets.shape and not scores.is_floating_point():
        return scores.long(), targets.long(), None
    has_scores = scores.dim() == targets.dim() + 1 and scores.shape[1] > 1
    if not has_scores or scores.shape[:1] + scores.shape[2:] != targets.shape:
        return None
    return scores.argmax(1), targets.long(), scores
