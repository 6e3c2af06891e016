"""The best value of a metric so far, of which best.ckpt is the checkpoint."""

import math

import torch

from lockstep.plan.schemas.groups import better
from lockstep.runs.run_files import Metrics


class BestMetric:
    """The best value of a metric, in float32. NaN is worst, and the first of equals is the best.

    badness: its best value, negated if more is better; None before the first one. epoch: of that value.
    is_new: whether the next checkpoint is the best one.
    """

    def __init__(self, name: str = "", mode: str | None = None) -> None:
        self.name, self.chosen_mode = name, mode
        self.badness: float | None = None
        self.epoch, self.is_new = 0, False

    @property
    def mode(self) -> str:
        return self.chosen_mode or better(self.name)

    def update(self, value: float, epoch: int) -> None:
        value = torch.tensor(value, dtype=torch.float32).item()
        badness = math.inf if math.isnan(value) else value if self.mode == "min" else -value
        self.is_new = self.badness is None or badness < self.badness
        if self.is_new:
            self.badness, self.epoch = badness, epoch

    def state(self) -> tuple[str, float, int] | None:
        """Return the `best` of a checkpoint's Content."""
        return None if self.badness is None else (self.name, self.badness, self.epoch)

    def restore(self, state: tuple[str, float, int] | None) -> None:
        """Restore what `state` has returned, unless it is of another metric."""
        if state and self.name in ("", state[0]):
            self.name, self.badness, self.epoch = state

    def metrics(self) -> Metrics:
        """Return for metrics.json the metric, whether less or more is better, its best value and the epoch of that."""
        if self.badness is None:
            return {}
        value = self.badness if self.mode == "min" else -self.badness
        return {"monitor": self.name, "mode": self.mode, "best": value, "best_epoch": self.epoch}
