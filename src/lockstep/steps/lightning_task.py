"""A TaskModule as a LightningModule: for Lightning's Trainer, and for callbacks, which expect one."""

import lightning.pytorch as pl

from lockstep.steps.task_module import TaskModule


class LightningTask(TaskModule, pl.LightningModule):
    """The steps of a task, with the base class that Lightning requires."""
