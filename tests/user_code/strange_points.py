"""A small regression, and its variants from bug reports."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset, default_collate


def points(n: int, seed: int) -> TensorDataset:
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x.sum(1, keepdim=True).tanh())


class Base(pl.LightningModule):
    """Mean squared error, and plain SGD."""

    collate: Any = staticmethod(default_collate)

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def loss(self, batch: Any) -> Tensor:
        return mse_loss(self.net(batch[0]), batch[1])

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def train_dataloader(self) -> Any:
        return DataLoader(points(48, 1), batch_size=8, collate_fn=self.collate)

    def val_dataloader(self) -> Any:
        return DataLoader(points(20, 2), batch_size=8, collate_fn=self.collate)


class Coded(Base):
    """A buffer that each step changes, as the codebook of a quantizer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("code", torch.zeros(4))

    def loss(self, batch: Any) -> Tensor:
        return mse_loss(self.net(batch[0] + self.code), batch[1])

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        self.code.mul_(0.9).add_(batch[0].detach().mean(0), alpha=0.1)  # type: ignore[operator]
        return loss


class FirstSamples(Base):
    """A sampler of torch's, but over other samples than those of the loader."""

    def train_dataloader(self) -> Any:
        return DataLoader(points(48, 1) + points(12, 3), batch_size=8, sampler=SequentialSampler(range(48)))


class OwnBatches(Base):
    def train_dataloader(self) -> Any:
        return DataLoader(points(48, 1), batch_sampler=[[*range(30)], [*range(30, 48)]])


def keep_some(samples: Any) -> Any:
    return default_collate([sample for sample in samples if sample[0][0] > -0.5])


class Dropping(Base):
    """A collate function that drops samples."""

    collate = staticmethod(keep_some)


class DroppingWeighted(Dropping):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return {"loss": super().training_step(batch, batch_idx), "weight": len(batch[0])}


class Stopping(Base):
    """Raises StopIteration the second time that a method is called."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.calls, original = 0, getattr(self, method)

        def stop(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            return next(iter(())) if self.calls == 2 else original(*arguments, **options)

        object.__setattr__(self, method, stop)
