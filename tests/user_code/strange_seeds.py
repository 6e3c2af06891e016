"""A module of a file that seeds all generators when it is imported; it draws in training and in evaluations."""

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

pl.seed_everything(11, verbose=False)


class Mixup(pl.LightningModule):
    """Mixes samples by numpy's generator, and validates with noise, as an autoencoder that samples does."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 3)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        weight = np.random.beta(0.4, 0.4)
        logits = self.net(weight * batch["x"] + (1 - weight) * batch["x"].flip(0))
        loss: Tensor = weight * F.cross_entropy(logits, batch["y"])
        return loss + (1 - weight) * F.cross_entropy(logits, batch["y"].flip(0))

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        logits = self.net(batch["x"] + torch.randn_like(batch["x"]) * np.random.random())
        self.log("test_loss" if self.trainer.testing else "val_loss", F.cross_entropy(logits, batch["y"]))

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.validation_step(batch, batch_idx)

    def on_validation_epoch_end(self) -> None:
        self.log("prior", torch.randn(8).mean(), batch_size=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)
