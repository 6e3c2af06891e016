"""How a rank's loss counts, so that the gradient is that of the whole global batch, ragged or not.

Engines average gradients over ranks, and over the batches of an optimizer step, and do not ask how many samples each
had.
"""

from typing import Any

from torch import Tensor

from lockstep.own_module.loaders import Taken
from lockstep.plan import Plan


def loss_weight(plan: Plan, taken: Taken, samples: int, averaged_over: int, batches: int) -> float:
    """The factor on the loss of so many samples of a global batch, whose gradients are then averaged over ranks and
    batches of the step.

    Args:
        averaged_over: ranks whose gradients are averaged; 1 where they are added.
        batches: of the step.
    """
    if samples == 0:
        return 0.0
    if plan.loss_reduction == "as_is":
        return averaged_over / plan.world.world_size / plan.strategy.virtual_ranks(plan.devices)
    if plan.loss_reduction == "sum":
        return float(averaged_over)
    window = taken.window or taken.samples * batches
    return averaged_over * batches * samples / window


def loss_sum(plan: Plan, loss: float | Tensor, samples: int) -> Any:
    """What the record has of a batch: the loss summed over samples."""
    if samples == 0:
        return 0.0
    return loss if plan.loss_reduction == "sum" else loss * samples


def loss_of(outputs: Any) -> Tensor | None:
    """What a training_step has returned as its loss."""
    found = outputs.get("loss") if isinstance(outputs, dict) else outputs
    return found if isinstance(found, Tensor) else None


def with_loss(outputs: Any, loss: Tensor) -> Any:
    """The same outputs with another loss."""
    return {**outputs, "loss": loss} if isinstance(outputs, dict) else loss
