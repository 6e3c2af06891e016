"""A module with loaders that asks its trainer for what is known only while it trains, and one with a sparse buffer."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.optim import SGD, Optimizer
from torch.utils.data import DataLoader, TensorDataset


def points(samples: int, seed: int) -> TensorDataset:
    x = torch.randn(samples, 4, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x.sum(1, keepdim=True).tanh())


class Early(pl.LightningModule):
    """seen: what `self.trainer` said: its epoch when loaders were made, its loaders when training started."""

    def __init__(self, learning_rate: float = 0.1) -> None:
        super().__init__()
        self.learning_rate, self.seen = learning_rate, list[Any]()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return mse_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val_loss", mse_loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> Optimizer:
        return SGD(self.parameters(), lr=self.learning_rate)

    def train_dataloader(self) -> DataLoader[Any]:
        """Return data that grows: 2 batches in the first epoch, 4 in the second, …"""
        self.seen.append((self.trainer.current_epoch, self.trainer.val_dataloaders))
        return DataLoader(points(16 * (1 + self.trainer.current_epoch), 1), batch_size=8)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(points(20, 2), batch_size=8)

    def on_train_start(self) -> None:
        if self.trainer.val_dataloaders is None:
            raise RuntimeError("there are no loaders of validation")


class Sparse(Early):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("adjacency", torch.eye(4).to_sparse())

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return mse_loss(self.net(torch.sparse.mm(self.adjacency, batch[0].T).T), batch[1])

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(points(16, 1), batch_size=8)
