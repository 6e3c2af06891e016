"""A TaskModule as a LightningModule: for Lightning's Trainer, and for callbacks, which expect one."""

from typing import Any

import lightning.pytorch as pl
from torch import Tensor

from lockstep.steps.task_module import TaskModule


class LightningTask(TaskModule, pl.LightningModule):
    """The steps of a task, with the base class that Lightning requires."""

    def backward(self, loss: Tensor, *arguments: Any, **options: Any) -> None:
        """Weight the loss, in Lightning's own loop."""
        super().backward(loss * self.sums.weight, *arguments, **options)
