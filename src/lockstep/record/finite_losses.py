"""A NaN or infinite loss ends the run with the number of its step."""

import math

from lockstep.errors import NotFinite
from lockstep.plan import Plan
from lockstep.sums.running import Scalar, to_floats

GPU_CHECK_EVERY = 50
"""Batches between two checks of losses on a GPU, each of which waits for it; on a CPU every loss is checked."""


class FiniteLosses:
    """The losses of one rank's batches that are not checked yet; with `detect_nan=false` none are checked."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.every = (1 if plan.accelerator == "cpu" else GPU_CHECK_EVERY) if plan.detect_nan else 0
        self.unchecked: list[Scalar] = []
        self.epoch = self.batch = 0  # of the latest

    def add(self, loss: Scalar, epoch: int, batch: int) -> None:
        """Add the loss of a batch; `epoch` and `batch` count from 0.

        Raises:
            NotFinite: a loss is NaN or infinite.
        """
        if self.every:
            self.unchecked.append(loss)
            self.epoch, self.batch = epoch, batch
            if len(self.unchecked) == self.every:
                self.check()

    def check(self) -> None:
        """Check the remaining losses. Call it before an epoch ends."""
        losses, self.unchecked = to_floats(self.unchecked), []
        for batch, loss in enumerate(losses, start=self.batch + 1 - len(losses)):
            if not math.isfinite(loss):
                step = self.plan.steps.steps_before(self.epoch, batch) + 1
                raise not_finite(f"the loss of step {step}", loss)


def not_finite(name: str, value: float) -> NotFinite:
    """Return the error of a NaN or infinite value."""
    hint = "a smaller optimizer.lr, gradient_clip_val=1.0, say, or detect_nan=false to train on"
    return NotFinite(f"{name} is {value}; the checkpoints before it are kept; write {hint}.")
