"""A module that trains a net to predict classes: of samples, or of the elements of each, such as pixels."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torchmetrics import MetricCollection, classification
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from lockstep.models.checks import check_classes, pair_of
from lockstep.models.net_module import Metrics, NetModule


class Classifier(NetModule):
    """Cross-entropy of logits (batch, classes, …) and classes (batch, …); accuracy, and macro F1 in evaluations.

    Args:
        num_classes: filled in from the data; outputs of the net beyond these are never predicted.
        metrics: further ones of evaluations, of the probabilities; scheduler_interval, monitor: see NetModule.
    """

    def __init__(
        self,
        net: nn.Module,
        optimizer: Callable[..., Optimizer],
        scheduler: Callable[..., Any] | None = None,
        *,
        num_classes: int,
        scheduler_interval: str | None = None,
        monitor: str = "val/acc",
        metrics: Metrics = None,
    ) -> None:
        super().__init__(net, optimizer, scheduler, scheduler_interval, monitor)
        self.num_classes = num_classes
        options: dict[str, Any] = {"num_classes": num_classes, "validate_args": False}
        accuracy, f1 = MulticlassAccuracy(average="micro", **options), MulticlassF1Score(**options)
        default: dict[str, Any] = {"acc": accuracy, "f1": f1}
        self.val_metrics, self.test_metrics = (MetricCollection(default).clone(f"{name}/") for name in ("val", "test"))
        self.set_metrics(metrics, classification, **options)
        self.is_checked = False

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        _, predicted, loss = self.step(batch)
        self.log("train/loss", loss.detach(), on_step=False, on_epoch=True)
        self.log("train/acc", (predicted == batch[1]).double().mean(), on_step=False, on_epoch=True)
        return loss

    def evaluate(self, stage: str, batch: list[Tensor]) -> dict[str, Tensor]:
        """Update the metrics of a stage, and log them with its loss."""
        logits, predicted, loss = self.step(batch)
        metrics = self.val_metrics if stage == "val" else self.test_metrics
        metrics.update(predicted, batch[1])
        self.log(f"{stage}/loss", loss, sync_dist=True)
        self.log_dict(metrics)
        logits = logits[:, : self.num_classes]
        self.log_metrics(stage, logits, batch[1])
        return {"logits": logits, "targets": batch[1]}

    def step(self, batch: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits, predicted classes and the mean loss."""
        x, targets = pair_of(batch)
        logits = self(x)
        if not self.is_checked:
            check_classes(logits, targets, self.num_classes)
            self.is_checked = True
        return logits, logits.detach()[:, : self.num_classes].argmax(1), cross_entropy(logits, targets)
