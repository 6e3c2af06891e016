"""A LightningModule whose steps return predictions, of images with three classes that have names."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Shown(pl.LightningModule):
    """`returns`: the name of the predictions, or none. Its net has an output more than there are classes."""

    def __init__(self, returns: str = "logits") -> None:
        super().__init__()
        self.returns = returns
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.net(x)
        return outputs

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return F.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor] | None:
        x, y = batch
        logits = self(x)
        self.log("val/loss", F.cross_entropy(logits, y))
        predictions = logits.argmax(1) if self.returns == "preds" else logits
        return {self.returns: predictions, "targets": y} if self.returns else None

    test_step = validation_step

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05)


class Images(pl.LightningDataModule):
    """A validation of one sample and a test of nine: of two ranks one has no batch to validate on."""

    class_names = ("ant", "bee", "cat")
    num_classes = 3
    sample_shape = (1, 4, 4)

    def __init__(self, batch_size: int = 4) -> None:
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage: str | None = None) -> None:
        x = torch.randn(30, 1, 4, 4, generator=torch.Generator().manual_seed(3))
        y = torch.arange(30) % 3
        self.parts = {"train": (x[:20], y[:20]), "val": (x[20:21], y[20:21]), "test": (x[21:], y[21:])}

    def loader(self, name: str) -> DataLoader[Any]:
        return DataLoader(TensorDataset(*self.parts[name]), self.batch_size, shuffle=name == "train")

    def train_dataloader(self) -> DataLoader[Any]:
        return self.loader("train")

    def val_dataloader(self) -> DataLoader[Any]:
        return self.loader("val")

    def test_dataloader(self) -> DataLoader[Any]:
        return self.loader("test")


class Line(pl.LightningModule):
    """A line through one number; its step returns real targets."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.net(x)
        return outputs

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return F.mse_loss(self(batch[0]), batch[1])

    def test_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        return {"preds": self(batch[0]), "targets": batch[1]}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)
