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
        ignore_index: a class whose targets do not count, such as -100.
        metrics: further ones of evaluations, of the probabilities; scheduler_interval, monitor: see NetModule.
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
        metrics: Metrics = None,
    ) -> None:
        super().__init__(net, optimizer, scheduler, scheduler_interval, monitor)
        self.num_classes, self.ignore_index = num_classes, ignore_index
        options: dict[str, Any] = {"num_classes": num_classes, "ignore_index": ignore_index, "validate_args": False}
        accuracy, f1 = MulticlassAccuracy(average="micro", **options), MulticlassF1Score(**options)
        default: dict[str, Any] = {"acc": accuracy, "f1": f1}
        self.val_metrics, self.test_metrics = (MetricCollection(default).clone(f"{name}/") for name in ("val", "test"))
        self.set_metrics(metrics, classification, **options)
        self.is_checked = False

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
        _, predicted, loss, weight = self.step(batch)
        hits = (predicted == batch[1]).double()
        accuracy = hits.mean() if weight is None else hits[batch[1] != self.ignore_index].sum() / max(1, weight)
        self.log("train/loss", loss.detach(), on_step=False, on_epoch=True, batch_size=weight)
        self.log("train/acc", accuracy, on_step=False, on_epoch=True, batch_size=weight)
        return loss if weight is None else {"loss": loss, "weight": weight}

    def evaluate(self, stage: str, batch: list[Tensor]) -> dict[str, Tensor]:
        """Update the metrics of a stage, and log them with its loss."""
        logits, predicted, loss, weight = self.step(batch)
        metrics = self.val_metrics if stage == "val" else self.test_metrics
        metrics.update(predicted, batch[1])
        self.log(f"{stage}/loss", loss, batch_size=weight, sync_dist=True)
        self.log_dict(metrics)
        logits = logits[:, : self.num_classes]
        self.log_metrics(stage, logits, batch[1])
        return {"logits": logits, "targets": batch[1]}

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
