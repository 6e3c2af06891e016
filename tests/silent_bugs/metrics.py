"""Logging and metrics: what a callback monitors is not the value over all samples."""

import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torchmetrics import MeanMetric

from tests.silent_bugs.base import Batch, Regression
from tests.silent_bugs.gradients import Counted


class EveryError(Regression):
    """Validates by the mean over all errors of all ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = MeanMetric()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.mean.update((self(batch[0]) - batch[1]).square())
        self.log("val_loss", self.mean)


# 6 self.log divides the samples of all ranks by the number of ranks, and rounds down


class FlooredWeights(Counted):
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        errors, counted = self.errors(batch)
        count = int(counted.sum())
        self.log("val_loss", errors.sum() / max(1, count), batch_size=count, sync_dist=True)


class CorrectFlooredWeights(Counted):
    def __init__(self) -> None:
        super().__init__()
        self.mean = MeanMetric()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        errors, counted = self.errors(batch)
        self.mean.update(errors, counted)
        self.log("val_loss", self.mean)


# 7 a monitored value of one rank's share


class LocalMonitor(Regression):
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))


class CorrectLocalMonitor(Regression):
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch), sync_dist=True)


class Plateau(Regression):
    """Halves the rate after each epoch whose validation loss is not a quarter smaller."""

    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer = torch.optim.SGD(self.parameters(), self.lr)
        plateau = ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.25)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"}}


class LocalPlateau(Plateau):
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))


class CorrectLocalPlateau(Plateau):
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch), sync_dist=True)


# 0 a log that waits for the other ranks, on rank 0 alone


class SyncedByRankZero(Regression):
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        if self.trainer.is_global_zero:
            self.log("val_loss", self.loss(batch), sync_dist=True)


class CorrectSyncedByRankZero(Regression):
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch), sync_dist=True)
        if self.trainer.is_global_zero:
            self.log("val_batch", float(batch_idx), rank_zero_only=True)


# 7 a score that is no mean over samples, of one rank's share


class Scored(Regression):
    """Validates by the share of the variance that is left, over all samples at once."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[Tensor] = []

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.outputs.append(torch.cat([self(batch[0]), batch[1]], dim=1))

    def collected(self) -> Tensor:
        """Return predictions and targets of this rank, of shape (samples, 2)."""
        outputs = torch.cat(self.outputs)
        self.outputs.clear()
        return outputs


def unexplained(outputs: Tensor) -> Tensor:
    predictions, targets = outputs.unbind(dim=1)
    return (predictions - targets).square().mean() / targets.var()


class ScoreOfShare(Scored):
    def on_validation_epoch_end(self) -> None:
        self.log("val_loss", unexplained(self.collected()), sync_dist=True)


class CorrectScoreOfShare(Scored):
    def on_validation_epoch_end(self) -> None:
        gathered = torch.as_tensor(self.all_gather(self.collected()))
        self.log("val_loss", unexplained(gathered.reshape(-1, 2)), sync_dist=True)
