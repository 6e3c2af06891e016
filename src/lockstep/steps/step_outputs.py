"""What a step returns: a loss and what it is a mean over, or predictions.

A rank's loss is weighted so that the gradient is that of the mean loss over the global batch, ragged or not: engines
average gradients over ranks, and over the batches of an optimizer step, regardless of the samples of each.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.config_error import require
from lockstep.loaders.rank_loader import BatchShare
from lockstep.parallel.messages import all_reduce_sums
from lockstep.plan import Plan

Scale = Callable[[Tensor], Tensor]  # multiplies a loss by the factor of a gradient scaler, for float16
NAMES = ("logits", "preds", "targets")


def loss_of(outputs: Any) -> Tensor | None:
    """Return the loss in the return value of a training_step."""
    loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
    return loss if isinstance(loss, Tensor) else None


def loss_weight(plan: Plan, share: BatchShare, samples: int, averaged_over: int, batches: int) -> float:
    """Return the factor on the mean loss over `samples` samples of a global batch.

    averaged_over: ranks whose gradients are averaged afterwards; 1 if they are added.
    batches: over which they are averaged, too: those of the optimizer step.
    """
    if samples == 0:
        return 0.0
    if plan.loss_reduction == "none":
        return averaged_over / plan.world.world_size / plan.strategy.virtual_ranks(plan)
    if plan.loss_reduction == "sum":
        return float(averaged_over)
    return averaged_over * batches * samples / (share.step_samples or share.samples * batches)


def backward(loss: Tensor, weight: float, batches: int, scale: Scale | None) -> None:
    """Add the gradient of this batch to that of the mean loss of an optimizer step of so many batches.

    The bits are those of `scale(loss / batches * weight).backward()`, which takes longer.
    """
    if loss.numel() != 1 or (weight == 1.0 and batches == 1 and scale is None):
        loss.backward()  # type: ignore[no-untyped-call]  # raises torch's error for a loss that is no scalar
        return
    gradient = torch.full_like(loss, weight)
    if batches > 1:
        gradient /= batches
    loss.backward(gradient if scale is None else scale(gradient))  # type: ignore[no-untyped-call]


class LossWeights:
    """A loss that is a mean over something else than samples: tokens that count, pixels that are not ignored.

    Its training_step returns `{"loss": …, "weight": n}`, the loss a mean over n. Gradients of loss × n are added over
    the batches and ranks of an optimizer step, and divided once by the sum of n: exact, however unequal these are.
    batch: the weight of this rank's current batch, None if its step returned none.
    is_used: whether the steps return weights; None before the first one.
    window: the sum over earlier batches of the optimizer step.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.is_used: bool | None = None
        self.batch: float | None = None
        self.window = 0.0

    def read(self, outputs: Any) -> float | None:
        """Return the weight in the outputs of a training_step; raise if it is invalid, or only some steps have one."""
        value = outputs.get("weight") if isinstance(outputs, dict) else None
        if value is None and not self.is_used:
            if outputs is not None:
                self.is_used = False
            return None
        if outputs is None:  # a step that is left out
            return None
        plan, key, name = self.plan, "model", self.plan.model.name
        reason, hint = "its training_step returns a weight in some steps alone", "one that returns it in every step"
        require(value is not None and self.is_used is not False, key, name, reason, hint)
        if self.is_used is None:
            reason, hint = "it optimizes manually, and its training_step returns a weight", "one that returns a loss"
            require(not plan.model.manual, key, name, reason, hint)
            reason, hint = "training_step returns the weight of a mean", "loss_reduction=mean"
            require(plan.loss_reduction == "mean", "loss_reduction", plan.loss_reduction, reason, hint)
            self.is_used = True
        weight = float(value)  # type: ignore[arg-type]
        reason = f"its training_step returns the weight {weight}"
        require(0 <= weight < math.inf, key, name, reason, "one that returns a number of 0 or more")
        return weight

    def divide(self, parameters: Sequence[nn.Parameter], device: torch.device) -> None:
        """Divide the gradients by the sum of the weights over ranks and batches. To be called by every rank."""
        total = all_reduce_sums(torch.tensor(self.window + (self.batch or 0.0), dtype=torch.float64), device).item()
        for parameter in parameters:
            if total and parameter.grad is not None:
                parameter.grad.div_(total)


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


def join_outputs(outputs: Sequence[Any]) -> Any:
    """Return the outputs of the first rank, with the predictions of all of them."""
    first = outputs[0]
    if len(outputs) == 1 or not all(predictions_of(each) is not None for each in outputs):
        return first
    return {**first, **{name: torch.cat([each[name] for each in outputs]) for name in NAMES if name in first}}
