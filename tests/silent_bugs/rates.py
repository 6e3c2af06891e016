"""Rates: the schedule of N ranks is not that of one."""

from typing import Any

import torch
from lightning.pytorch.utilities.types import LRSchedulerTypeUnion, OptimizerLRScheduler
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, LinearLR

from tests.silent_bugs.base import Regression

# 17 a schedule as long as the batches of one process


class Decay(Regression):
    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer = torch.optim.SGD(self.parameters(), self.lr)
        schedule = LinearLR(optimizer, 1.0, 0.1, total_iters=self.steps())
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def steps(self) -> int:
        raise NotImplementedError


class ScheduleOfDataset(Decay):
    def steps(self) -> int:
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        return 2 * len(data.train) // int(data.batch_size)


class CorrectScheduleOfDataset(Decay):
    def steps(self) -> int:
        return int(self.trainer.estimated_stepping_batches)


# 17, 26 rates that depend on the number of ranks


class Scheduled(Regression):
    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer = torch.optim.SGD(self.parameters(), self.lr)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": ExponentialLR(optimizer, 0.9), "interval": "step"},
        }


class ScheduleOfWorld(Scheduled):
    def lr_scheduler_step(self, scheduler: LRSchedulerTypeUnion, metric: Any) -> None:
        for _ in range(self.trainer.world_size):
            scheduler.step()  # type: ignore[call-arg]


class CorrectScheduleOfWorld(Scheduled):
    def lr_scheduler_step(self, scheduler: LRSchedulerTypeUnion, metric: Any) -> None:
        scheduler.step()  # type: ignore[call-arg]


class RateScaledTwice(Regression):
    def configure_optimizers(self) -> OptimizerLRScheduler:
        world = self.trainer.world_size
        optimizer = torch.optim.SGD(self.parameters(), self.lr * world)
        return [optimizer], [LambdaLR(optimizer, lambda epoch: world * 0.9**epoch)]


class CorrectRateScaledTwice(Regression):
    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer = torch.optim.SGD(self.parameters(), self.lr)
        return [optimizer], [LambdaLR(optimizer, lambda epoch: 0.9**epoch)]
