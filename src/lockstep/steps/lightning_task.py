"""A TaskModule as a LightningModule: for Lightning's Trainer, and for callbacks, which expect one."""

from typing import Any

import lightning.pytorch as pl
import torch

from lockstep.data.tensors import Batch
from lockstep.steps.task_module import TaskModule


class LightningTask(TaskModule, pl.LightningModule):
    """The steps of a task, with the base class that Lightning requires."""

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Move a batch of a user's loader; those of data in memory are moved already, several at a time."""
        if isinstance(batch, Batch):
            return batch
        return pl.LightningModule.transfer_batch_to_device(self, batch, device, dataloader_idx)
