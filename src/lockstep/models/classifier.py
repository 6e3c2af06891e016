"""A module that trains a net to predict classes: of samples, or of the elements of each, such as pixels."""

from collections.abc import Callable
from typing import Any

from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from lockstep.models.checks import check_classes, pair_of
from lockstep.models.optimizers import configure


class Classifier(LightningModule):
    """Cross-entropy of logits (batch, classes, …) and classes (batch, …); accuracy, and macro F1 in evaluations.

    Args:
        num_classes: filled in from the data; outputs of the net beyond these are never predicted.
        ignore_index: a class whose targets do not count, such as -100.
        scheduler_interval: step or epoch, after which the rate changes; None: as the schedule needs it.
        monitor: the logged value by which best.ckpt is best, and that a ReduceLROnPlateau looks at.
    """

    def __init__(
        self,
        net: nn.Module,
        optimizer: Callable[..., Optimizer],
        scheduler: Callable[..., Any] | None = None,
        *,
        num_classes: int,
        ignore_index: int | None = None,
        scheduler_interval: str | None = None,
        monitor: str = "val/acc",
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["net", "optimizer", "scheduler"], logger=False)
        self.net, self.optimizer, self.scheduler = net, optimizer, scheduler
        self.num_classes, self.ignore_index, self.monitor = num_classes, ignore_index, monitor
        options: dict[str, Any] = {"num_classes": num_classes, "ignore_index": ignore_index, "validate_args": False}
        accuracy, f1 = MulticlassAccuracy(average="micro", **options), MulticlassF1Score(**options)
        metrics: dict[str, Any] = {"acc": accuracy, "f1": f1}
        self.val_metrics, self.test_metrics = (MetricCollection(metrics).clone(f"{name}/") for name in ("val", "test"))
        self.is_checked = False

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)  # type: ignore[no-any-return]

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
        _, predicted, loss, weight = self.step(batch)
        hits = (predicted == batch[1]).double()
        accuracy = hits.mean() if weight is None else hits[batch[1] != self.ignore_index].sum() / max(1, weight)
        self.log("train/loss", loss.detach(), on_step=False, on_epoch=True, batch_size=weight)
        self.log("train/acc", accuracy, on_step=False, on_epoch=True, batch_size=weight)
        return loss if weight is None else {"loss": loss, "weight": weight}

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> dict[str, Tensor]:
        return self.evaluate("val", self.val_metrics, batch)

    def test_step(self, batch: list[Tensor], batch_idx: int) -> dict[str, Tensor]:
        return self.evaluate("test", self.test_metrics, batch)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self(batch[0] if isinstance(batch, list | tuple) else batch)  # type: ignore[no-any-return]

    def evaluate(self, stage: str, metrics: MetricCollection, batch: list[Tensor]) -> dict[str, Tensor]:
        """Update the metrics of a stage, and log them with its loss."""
        logits, predicted, loss, weight = self.step(batch)
        metrics.update(predicted, batch[1])
        self.log(f"{stage}/loss", loss, batch_size=weight, sync_dist=True)
        self.log_dict(metrics)
        return {"logits": logits[:, : self.num_classes], "targets": batch[1]}

    def step(self, batch: list[Tensor]) -> tuple[Tensor, Tensor, Tensor, int | None]:
        """Return logits, predicted classes, the mean loss, and the number of targets in this mean; None: all."""
        x, targets = pair_of(batch)
        logits = self(x)
        if not self.is_checked:
            check_classes(logits, targets, self.num_classes, self.ignore_index)
            self.is_checked = True
        predicted = logits.detach()[:, : self.num_classes].argmax(1)
        if self.ignore_index is None:
            return logits, predicted, cross_entropy(logits, targets), None
        weight = int((targets != self.ignore_index).sum())
        loss = cross_entropy(logits, targets, ignore_index=self.ignore_index, reduction="sum")
        return logits, predicted, loss / max(1, weight), weight

    def configure_optimizers(self) -> Any:
        return configure(self, self.optimizer, self.scheduler, self.hparams["scheduler_interval"], self.monitor)
