"""A LightningModule that logs torchmetrics of several kinds: counts, sums, all scores, and scores in groups."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAUROC, MulticlassF1Score
from torchmetrics.regression import R2Score
from torchmetrics.retrieval import RetrievalMAP

SAMPLES = {"train": 24, "val": 17, "test": 21}
"""In batches of 8: the last one of a validation has one sample, so that a rank of two has none."""


def split(stage: str) -> TensorDataset:
    """Inputs, classes and groups; each group has samples of every batch."""
    size, generator = SAMPLES[stage], torch.Generator().manual_seed(len(stage))
    x, classes = torch.randn(size, 4, generator=generator), torch.randint(3, (size,), generator=generator)
    return TensorDataset(x, classes, torch.arange(size) % 3)


class Metrics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.collection = MetricCollection({"auroc": MulticlassAUROC(3), "f1": MulticlassF1Score(3)})
        self.r2, self.retrieval, self.by_hand = R2Score(), RetrievalMAP(), MulticlassF1Score(3)

    def update(self, logits: Tensor, classes: Tensor, groups: Tensor) -> None:
        self.collection.update(logits.softmax(1), classes)
        self.by_hand.update(logits, classes)
        self.r2.update(logits[:, 0], classes.to(logits.dtype))
        self.retrieval.update(logits[:, 1], classes == 1, groups)

    def values(self) -> dict[str, Any]:
        named = self.collection.items(keep_base=False, copy_state=False)
        return {**dict(named), "r2": self.r2, "retrieval": self.retrieval}


class Measured(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.by_stage = nn.Linear(4, 3), nn.ModuleDict({"val": Metrics(), "test": Metrics()})

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.measure("val", batch)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.measure("test", batch)

    def on_validation_epoch_end(self) -> None:
        self.log("val/by_hand", self.by_stage["val"].by_hand.compute())  # type: ignore[union-attr, operator]

    def on_test_epoch_end(self) -> None:
        self.log("test/by_hand", self.by_stage["test"].by_hand.compute())  # type: ignore[union-attr, operator]

    def measure(self, stage: str, batch: Any) -> None:
        metrics: Any = self.by_stage[stage]
        metrics.update(self.net(batch[0]), *batch[1:])
        self.log_dict({f"{stage}/{name}": metric for name, metric in metrics.values().items()})

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def train_dataloader(self) -> Any:
        return DataLoader(split("train"), 8, shuffle=True)

    def val_dataloader(self) -> Any:
        return DataLoader(split("val"), 8)

    def test_dataloader(self) -> Any:
        return DataLoader(split("test"), 8)
