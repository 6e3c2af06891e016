"""The curves over optimizer steps: every `log_every_n_steps` the loss, the learning rate and the speed of training."""

import time
from collections.abc import Collection

import torch
from torch import Tensor

from lockstep.loggers import Loggers
from lockstep.parallel.messages import all_reduce_sums
from lockstep.plan import Plan
from lockstep.record.step_lines import Scalar

STEP_LOSS = "train/loss_step"


class StepCurve:
    """This rank's sums since the last point: the loss times what it counts, what it counts, and samples."""

    def __init__(self, plan: Plan, loggers: Loggers, device: torch.device) -> None:
        self.plan, self.loggers, self.device = plan, loggers, device
        self.loss: Scalar = 0.0
        self.weight, self.samples = 0.0, 0
        self.point_time = 0.0

    def begin_epoch(self, is_resumed: bool) -> None:
        """Begin anew, so that no point has the time between two epochs."""
        self.point_time = time.perf_counter()
        if not is_resumed:
            self.loss, self.weight, self.samples = 0.0, 0.0, 0

    def add(self, loss_sum: Scalar, weight: float, samples: int) -> None:
        """Add a batch whose loss times `weight` is `loss_sum`."""
        self.loss = self.loss + loss_sum
        self.weight += weight
        self.samples += samples

    def log(self, step: int, rate: float, logged: Collection[str]) -> None:
        """Log a point, but no name that the module itself has `logged` on the step. To be called by every rank."""
        loss, weight, samples = all_reduce_sums(self.sums, self.device).tolist()
        seconds = time.perf_counter() - self.point_time
        values = {STEP_LOSS: loss / weight} if weight else {}
        values |= {"lr": rate, "samples_per_second": samples / seconds}
        self.loggers.log_metrics({name: value for name, value in values.items() if name not in logged}, step)
        self.begin_epoch(is_resumed=False)

    @property
    def sums(self) -> Tensor:
        return torch.tensor([float(self.loss), self.weight, self.samples], dtype=torch.float64)

    def restore(self, sums: Tensor) -> None:
        self.loss, self.weight, samples = sums.tolist()
        self.samples = int(samples)
