"""The end of a run whose loss is NaN or infinite, with its step named."""

import math

from lockstep.errors import NotFinite
from lockstep.plan import Plan
from lockstep.sums.running import Scalar, to_floats

GPU_LOOK_EVERY = 50
"""Batches between two looks at losses that lie on a GPU, which wait for it; on a CPU each is looked at."""


class FiniteLosses:
    """One for each rank, of its own share of the batches; none is looked at where the plan has no `detect_nan`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.every = (1 if plan.accelerator == "cpu" else GPU_LOOK_EVERY) if plan.detect_nan else 0
        self.unseen: list[Scalar] = []
        self.epoch = self.batch = 0  # of the latest

    def add(self, loss: Scalar, epoch: int, batch: int) -> None:
        """Of a batch of an epoch, both from 0.

        Raises:
            NotFinite: it, or one that nobody has looked at yet, is NaN or infinite.
        """
        if self.every:
            self.unseen.append(loss)
            self.epoch, self.batch = epoch, batch
            if len(self.unseen) == self.every:
                self.check()

    def check(self) -> None:
        """Look at those that nobody has looked at yet. To be called before an epoch ends."""
        losses = to_floats(self.unseen)
        for batch, loss in enumerate(losses, start=self.batch + 1 - len(losses)):
            if not math.isfinite(loss):
                steps = self.plan.total_steps // self.plan.max_epochs
                step = self.epoch * steps + batch // self.plan.accumulate_grad_batches + 1
                raise not_finite(f"the loss of step {step}", loss)
        self.unseen = []


def not_finite(what: str, value: float) -> NotFinite:
    instead = "a smaller optimizer.lr, gradient_clip_val=1.0, say, or detect_nan=false to train on"
    return NotFinite(f"{what} is {value}; the checkpoints before it are kept; write {instead}.")
