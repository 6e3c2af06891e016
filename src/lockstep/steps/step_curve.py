"""The curves over optimizer steps: every `log_every_n_steps` the loss, the learning rate and the speed of training."""

import time

import torch
from torch import Tensor

from lockstep.parallel.messages import all_reduce_sums
from lockstep.record.step_lines import Scalar

STEP_LOSS = "train/loss_step"


class StepCurve:
    """This rank's sums since the last point: the loss times what it counts, what it counts, and samples."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
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

    def point(self) -> dict[str, float]:
        """Return the values since the last point, over all ranks; begin the next one. To be called by every rank."""
        loss, weight, samples = all_reduce_sums(self.sums, self.device).tolist()
        speed = samples / (time.perf_counter() - self.point_time)
        self.begin_epoch(is_resumed=False)
        return {**({STEP_LOSS: loss / weight} if weight else {}), "samples_per_second": speed}

    @property
    def sums(self) -> Tensor:
        return torch.tensor([float(self.loss), self.weight, self.samples], dtype=torch.float64)

    def restore(self, sums: Tensor) -> None:
        self.loss, self.weight, samples = sums.tolist()
        self.samples = int(samples)
