"""The LightningModule: what one step of training and evaluation computes."""

from typing import Any

import lightning.pytorch as pl
from torch import Tensor, nn

from lockstep.data.tensors import Batch
from lockstep.optimizers import create_optimizer
from lockstep.parallel import GlobalMasks
from lockstep.plan import Plan
from lockstep.schedulers import create_scheduler
from lockstep.sums.running import BatchStats, batch_stats
from lockstep.sums.step_counts import StepCounts

NEVER = 2**62
"""Epochs between two steps of a schedule that Lightning saves and PlateauStep steps."""


class Supervised(pl.LightningModule):
    """A net and its objective. Steps return the batch's statistics; EpochMetrics adds them over batches and ranks."""

    def __init__(self, net: nn.Module, plan: Plan, masks: GlobalMasks, counts: StepCounts) -> None:
        super().__init__()
        self.net, self.plan, self.masks, self.step_counts = net, plan, masks, counts
        self.compute = plan.strategy.forward(plan, net)
        self.objective = plan.objective

    def forward(self, inputs: Tensor) -> Any:
        return self.compute(inputs)

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        self.masks.begin(self.current_epoch, batch_idx)
        loss_sum, stats, _ = self.shared_step(batch)
        self.step_counts.add(stats)
        return {"loss": loss_sum * self.plan.loss_scale(batch_idx), "stats": stats, "ids": batch.ids}

    def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        _, stats, outputs = self.shared_step(batch)
        return {"stats": stats, "outputs": outputs}

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        return self.validation_step(batch, batch_idx)

    def configure_optimizers(self) -> Any:
        optimizer = create_optimizer(self.plan.optimizer, self.net)
        scheduler, interval = create_scheduler(self.plan, optimizer), self.plan.scheduler.interval
        if scheduler is None:
            return optimizer
        if interval == "plateau":  # Lightning would step it behind the checkpoint, which would then lack the step
            config = {"scheduler": scheduler, "interval": "epoch", "frequency": NEVER, "monitor": "train/loss"}
        else:
            config = {"scheduler": scheduler, "interval": interval}
        return {"optimizer": optimizer, "lr_scheduler": config}

    def shared_step(self, batch: Batch) -> tuple[Tensor, BatchStats, Any]:
        """The loss summed over the batch, what the batch adds to the sums, and the net's outputs."""
        outputs = self(batch.inputs)
        loss_sum = self.objective.loss_sum(outputs, batch.targets)
        return loss_sum, batch_stats(self.objective, loss_sum, outputs, batch.targets), outputs
