"""LightningModules: what one step of training and evaluation computes, for classification and for regression."""

from typing import Any

import lightning.pytorch as pl
from torch import Tensor, nn
from torchmetrics.classification import MulticlassConfusionMatrix

from lockstep.data.tensors import Batch
from lockstep.optimizers import create_optimizer, create_scheduler
from lockstep.parallel import Masks, forward_of
from lockstep.plan import Plan
from lockstep.task import Sums, sums, task_of


class Supervised(pl.LightningModule):
    """A net and how it is judged. Steps return sums; the callback Totals adds them over batches and ranks."""

    def __init__(self, net: nn.Module, plan: Plan, masks: Masks) -> None:
        super().__init__()
        self.net, self.plan, self.masks = net, plan, masks
        self.compute = forward_of(plan, net)
        self.task = task_of(plan.data.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.compute(inputs)

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        self.masks.begin(self.current_epoch, batch_idx)
        loss_sum, batch_sums, _ = self.judge(batch)
        return {"loss": loss_sum * self.plan.loss_scale(batch_idx), "sums": batch_sums, "ids": batch.ids}

    def validation_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self.judge(batch)[1]

    def test_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self.judge(batch)[1]

    def configure_optimizers(self) -> Any:
        optimizer = create_optimizer(self.plan.optimizer, self.net)
        scheduler = create_scheduler(self.plan.scheduler, optimizer, self.plan.total_steps)
        if scheduler is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def judge(self, batch: Batch) -> tuple[Tensor, Sums, Tensor]:
        """The loss summed over the batch, the batch's sums, and the net's outputs."""
        outputs = self(batch.inputs)
        loss_sum = self.task.loss_sum(outputs, batch.targets)
        return loss_sum, sums(self.task, loss_sum, outputs, batch.targets), outputs


class Regressor(Supervised):
    """Squared error."""


class Classifier(Supervised):
    """Cross-entropy, accuracy, and the confusion counts that macro-F1 comes from; torchmetrics adds them over ranks."""

    def __init__(self, net: nn.Module, plan: Plan, masks: Masks) -> None:
        super().__init__(net, plan, masks)
        self.confusion = MulticlassConfusionMatrix(plan.data.classes, validate_args=False)  # a rank may have no sample

    def validation_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self._counted(batch)

    def test_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self._counted(batch)

    def _counted(self, batch: Batch) -> Sums:
        _, batch_sums, outputs = self.judge(batch)
        self.confusion.update(outputs, batch.targets)
        return batch_sums


def create_module(net: nn.Module, plan: Plan, masks: Masks) -> Supervised:
    return (Classifier if plan.data.classes else Regressor)(net, plan, masks)
