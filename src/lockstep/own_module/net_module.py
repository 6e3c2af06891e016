"""A plain net as a LightningModule, so that callbacks and loaders may go along with it: its steps are the task's."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from lockstep import schemas
from lockstep.data.own import keys_of
from lockstep.data.samples import as_batch
from lockstep.data.tensors import Batch
from lockstep.optimizers import create_optimizer
from lockstep.precision import dtype_of
from lockstep.schedulers import create_scheduler
from lockstep.session import Session
from lockstep.sums.running import BatchStats, EvaluationSums, batch_stats


class NetModule(pl.LightningModule):
    """`stats` are what the last training batch has added to the task's sums, `evaluation` the sums of a split.

    The net is `net`, as in the checkpoints of plain nets.
    """

    evaluation: EvaluationSums

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.plan, self.objective, self.net = session.plan, session.plan.objective, session.net
        self.compute = self.plan.strategy.forward(self.plan, self.net)
        self.dtype_of_inputs, self.samples = dtype_of(self.plan), self.plan.task.samples
        self.keys, self.step_counts = keys_of(self.plan.data), session.counts
        self.scale, self.empty = 1.0, False
        self.stats: BatchStats = ()

    def begin(self, scale: float, empty: bool) -> None:
        """A training batch.

        Args:
            scale: from its loss sum to its part of the optimizer step's mean.
            empty: whether this rank has no sample of it, and is handed somebody else's to know the shapes.
        """
        self.scale, self.empty = scale, empty

    def forward(self, inputs: Tensor) -> Any:
        return self.compute(inputs)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        batch = self.ready(batch)
        if self.empty:
            batch = Batch(*(own[:0] for own in batch))
        loss_sum, self.stats, _ = self.shared_step(batch)
        self.step_counts.add(self.stats)
        return loss_sum * self.scale

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        batch = self.ready(batch)
        _, stats, outputs = self.shared_step(batch)
        self.evaluation.add(stats, outputs, batch.targets, batch.inputs)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.validation_step(batch, batch_idx)

    def configure_optimizers(self) -> Any:
        optimizer = create_optimizer(self.plan.optimizer, self.net)
        schedule = self.plan.scheduler
        scheduler = create_scheduler(self.plan, optimizer)
        if scheduler is None:
            return optimizer
        if isinstance(schedule, schemas.OwnScheduler) and schedule.plateau:
            config = {"scheduler": scheduler, "interval": "epoch", "monitor": schedule.watched(self.plan)}
        else:
            config = {"scheduler": scheduler, "interval": schedule.interval}
        return {"optimizer": optimizer, "lr_scheduler": config}

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Of built-in data the loader has moved it, together with others."""
        return batch if isinstance(batch, Batch) else super().transfer_batch_to_device(batch, device, dataloader_idx)

    def shared_step(self, batch: Batch) -> tuple[Tensor, BatchStats, Any]:
        """The loss summed over the batch, what the batch adds to the sums, and the net's outputs."""
        outputs = self(batch.inputs)
        loss_sum = self.objective.loss_sum(outputs, batch.targets)
        return loss_sum, batch_stats(self.objective, loss_sum, outputs, batch.targets), outputs

    def ready(self, batch: Any) -> Batch:
        """A batch of a user's loader as the net takes it."""
        if isinstance(batch, Batch):
            return batch
        made = self.keys.of_batch(batch) if self.keys else batch
        return as_batch(made, self.samples, self.dtype_of_inputs)
