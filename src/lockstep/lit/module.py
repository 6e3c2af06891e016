"""LightningModules: what one step of training and evaluation computes, for classification and for regression."""

from typing import Any

import lightning.pytorch as pl
from torch import Tensor, nn
from torchmetrics.classification import MulticlassConfusionMatrix

from lockstep.data.tensors import Batch
from lockstep.optimizers import create_optimizer, create_scheduler
from lockstep.parallel import GlobalMasks
from lockstep.plan import Plan
from lockstep.task import BatchStats, batch_stats, task_of


class Supervised(pl.LightningModule):
    """A net and its task. Steps return the batch's statistics; EpochMetrics adds them over batches and ranks."""

    def __init__(self, net: nn.Module, plan: Plan, masks: GlobalMasks) -> None:
        super().__init__()
        self.net, self.plan, self.masks = net, plan, masks
        self.compute = plan.strategy.forward(plan, net)
        self.task = task_of(plan.data.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.compute(inputs)

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        self.masks.begin(self.current_epoch, batch_idx)
        loss_sum, stats, _ = self.shared_step(batch)
        return {"loss": loss_sum * self.plan.loss_scale(batch_idx), "stats": stats, "ids": batch.ids}

    def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        return {"stats": self.shared_step(batch)[1]}

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        return {"stats": self.shared_step(batch)[1]}

    def configure_optimizers(self) -> Any:
        optimizer = create_optimizer(self.plan.optimizer, self.net)
        scheduler = create_scheduler(self.plan.scheduler, optimizer, self.plan.total_steps)
        if scheduler is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def shared_step(self, batch: Batch) -> tuple[Tensor, BatchStats, Tensor]:
        """The loss summed over the batch, what the batch adds to the sums, and the net's outputs."""
        outputs = self(batch.inputs)
        loss_sum = self.task.loss_sum(outputs, batch.targets)
        return loss_sum, batch_stats(self.task, loss_sum, outputs, batch.targets), outputs


class Regressor(Supervised):
    """Squared error."""


class Classifier(Supervised):
    """Cross-entropy, accuracy, and the confusion counts that macro-F1 comes from.

    torchmetrics adds them over batches; over ranks they are added with the sums, in one message.
    """

    def __init__(self, net: nn.Module, plan: Plan, masks: GlobalMasks) -> None:
        super().__init__(net, plan, masks)
        unchecked: dict[str, Any] = {"validate_args": False, "sync_on_compute": False}  # a rank may have no sample
        self.confusion = MulticlassConfusionMatrix(plan.data.classes, **unchecked)

    def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        return self._counted(batch)

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        return self._counted(batch)

    def _counted(self, batch: Batch) -> dict[str, Any]:
        _, stats, outputs = self.shared_step(batch)
        self.confusion.update(outputs, batch.targets)
        return {"stats": stats}


def create_module(net: nn.Module, plan: Plan, masks: GlobalMasks) -> Supervised:
    return (Classifier if plan.data.classes else Regressor)(net, plan, masks)
