"""The net and the data that most cases share: a regression of 32 points, whose steps take microseconds."""

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, distributed, nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, Dataset, TensorDataset

Batch = list[Tensor]
"""Inputs of shape (batch, 4) and targets of shape (batch, 1)."""


def rank_and_world() -> tuple[int, int]:
    """Return the rank of this process and the number of ranks: (0, 1) without a process group."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def mean_over_ranks(value: Tensor) -> Tensor:
    """Return the mean of a tensor over all ranks, without a gradient."""
    total = value.detach().clone()
    world = rank_and_world()[1]
    if world > 1:
        distributed.all_reduce(total)
    return total / world


def draw_points(samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return inputs and targets, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, 4, generator=generator)
    targets = inputs.sin().sum(dim=1, keepdim=True) + 0.3 * torch.randn(samples, 1, generator=generator)
    return inputs, targets


class Points(LightningDataModule):
    """Points in order, without shuffling: two layouts see the same batches."""

    def __init__(self, batch_size: int = 8, samples: int = 32, val_samples: int = 16, num_workers: int = 0) -> None:
        super().__init__()
        self.batch_size, self.num_workers = batch_size, num_workers
        self.train: Dataset[tuple[Tensor, ...]] = TensorDataset(*draw_points(samples, seed=0))
        self.val: Dataset[tuple[Tensor, ...]] = TensorDataset(*draw_points(val_samples, seed=1))

    def train_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        return DataLoader(self.train, self.batch_size, num_workers=self.num_workers)

    def val_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        return DataLoader(self.val, self.batch_size, generator=torch.Generator())  # leaves training's generator alone


class Regression(LightningModule):
    """A net of two layers, the mean squared error and SGD."""

    def __init__(self, lr: float = 0.1) -> None:
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.net(inputs)
        return outputs

    def loss(self, batch: Batch) -> Tensor:
        return mse_loss(self(batch[0]), batch[1])

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor | None:
        return self.loss(batch)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch), sync_dist=True)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        return torch.optim.SGD(self.parameters(), self.lr)
