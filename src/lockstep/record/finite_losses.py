"""A NaN or infinite loss ends the run, its step named."""

import math

from lockstep.errors import NotFinite
from lockstep.plan import Plan
from lockstep.sums.running import Scalar, to_floats

GPU_CHECK_EVERY = 50
"""Batches between two checks of losses on a GPU, each of which waits for it; on a CPU every loss is checked."""


class FiniteLosses:
    """One for each rank, of its own share of the batches; none is checked where the plan has no `detect_nan`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.every = (1 if plan.accelerator == "cpu" else GPU_CHECK_EVERY) if plan.detect_nan else 0
        self.unchecked: list[Scalar] = []
        self.epoch = self.batch = 0  # of the latest

    def add(self, loss: Scalar, epoch: int, batch: int) -> None:
        """Of a batch of an epoch, both from 0.

        Raises:
            NotFinite: it, or one that is not checked yet, is NaN or infinite.
        """
        if self.every:
            self.unchecked.append(loss)
            self.epoch, self.batch = epoch, batch
            if len(self.unchecked) == self.every:
                self.check()

    def check(self) -> None:
        """Check those that are not checked yet. To be called before an epoch ends."""
        losses = to_floats(self.unchecked)
        for batch, loss in enumerate(losses, start=self.batch + 1 - len(losses)):
            if not math.isfinite(loss):
                step = self.plan.steps.steps_before(self.epoch, batch) + 1
                raise not_finite(f"the loss of step {step}", loss)
        self.unchecked = []


def not_finite(what: str, value: float) -> NotFinite:
    hint = "a smaller optimizer.lr, gradient_clip_val=1.0, say, or detect_nan=false to train on"
    return NotFinite(f"{what} is {value}; the checkpoints before it are kept; write {hint}.")
