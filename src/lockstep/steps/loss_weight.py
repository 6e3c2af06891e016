"""The weight of a rank's loss, so that the gradient is that of the mean loss over the global batch, ragged or not.

Engines average gradients over ranks, and over the batches of an optimizer step, regardless of the samples of each.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.checkpoint.content import Content, Progress
from lockstep.loaders.rank_loader import BatchShare
from lockstep.plan import Plan

Scale = Callable[[Tensor], Tensor]  # multiplies a loss by the factor of a gradient scaler, for float16


class Step:
    """The base of steps; the session calls its methods, some of which do nothing unless they are overridden.

    weight: the factor on the loss of the current batch.
    share, loader: this rank's part of the batch, and the index of its loader in an evaluation.
    """

    weight = 1.0
    share: BatchShare
    loader = 0

    def watch(self, optimizers: Sequence[Optimizer], wrapped: object) -> None: ...
    def begin_epoch(self, position: Progress) -> None: ...
    def begin_evaluation(self, stage: str) -> None: ...
    def log_points(self, step: int | None, rate: float) -> None: ...
    def restore(self, content: Content, sums: Mapping[str, Tensor], window: Tensor) -> None: ...

    def set_share(self, share: BatchShare, loader: int = 0) -> None:
        self.share, self.loader = share, loader

    @property
    def samples(self) -> int:
        """Return this rank's samples of the batch; none of a dummy batch."""
        return 0 if self.share.is_dummy else self.share.count

    def backward(self, loss: Tensor, batches: int, scale: Scale | None = None) -> None:
        """Add the gradient of this batch to that of the mean loss of an optimizer step of so many batches.

        The bits are those of `scale(loss / batches * weight).backward()`, which takes longer.
        """
        if loss.numel() != 1 or (self.weight == 1.0 and batches == 1 and scale is None):
            loss.backward()  # type: ignore[no-untyped-call]  # raises torch's error for a loss that is no scalar
            return
        gradient = torch.full_like(loss, self.weight)
        if batches > 1:
            gradient /= batches
        loss.backward(gradient if scale is None else scale(gradient))  # type: ignore[no-untyped-call]


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


def loss_of(outputs: Any) -> Tensor | None:
    """Return the loss in the return value of a training_step."""
    loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
    return loss if isinstance(loss, Tensor) else None
