"""Predictions in what a validation or test step returns: {"logits" or "preds": …, "targets": …}."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

NAMES = ("logits", "preds", "targets")


@dataclass(frozen=True)
class Predictions:
    """Classes that a step predicts, int64.

    scores: logits or probabilities (batch, classes, …); None if the step returns classes.
    """

    predicted: Tensor
    targets: Tensor
    scores: Tensor | None = None


def predictions_of(outputs: Any) -> Predictions | None:
    """Return the predictions in the outputs of a step; None if there are none, or targets are no classes."""
    if not isinstance(outputs, Mapping):
        return None
    scores, targets = outputs.get("logits", outputs.get("preds")), outputs.get("targets")
    if not isinstance(scores, Tensor) or not isinstance(targets, Tensor) or targets.is_floating_point():
        return None
    if scores.shape == targets.shape and not scores.is_floating_point():
        return Predictions(scores.long(), targets.long())
    has_scores = scores.dim() == targets.dim() + 1 and scores.shape[1] > 1
    if not has_scores or scores.shape[:1] + scores.shape[2:] != targets.shape:
        return None
    return Predictions(scores.argmax(1), targets.long(), scores)


def join_outputs(outputs: Sequence[Any]) -> Any:
    """Return the outputs of the first rank, with the predictions of all of them."""
    first = outputs[0]
    if len(outputs) == 1 or not all(predictions_of(each) is not None for each in outputs):
        return first
    return {**first, **{name: torch.cat([each[name] for each in outputs]) for name in NAMES if name in first}}
