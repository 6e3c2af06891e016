"""LightningModules that do with their weights what they like, wherever they like."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Rows(pl.LightningDataModule):
    """Ragged batches in training, and in validation one of a single sample."""

    def train_dataloader(self) -> DataLoader[Any]:
        x = torch.linspace(-1, 1, 88).reshape(22, 4)
        return DataLoader(TensorDataset(x, x.sin().sum(1, keepdim=True)), batch_size=6, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        x = torch.linspace(-2, 2, 28).reshape(7, 4)
        return DataLoader(TensorDataset(x, x.sin().sum(1, keepdim=True)), batch_size=6)


class Critic(pl.LightningModule):
    """Manual optimization: gradients of two backward passes, clipped by torch, weights clamped between two steps."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.maker, self.critic = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
        self.scale = nn.Parameter(torch.tensor(1.5))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizers: Any = self.optimizers()
        critic, maker = optimizers
        x, _ = batch
        self.critic.zero_grad()
        self.manual_backward(self.critic(self.maker(x).detach()).mean() * self.scale)
        self.manual_backward(-self.critic(x).mean() * self.scale)
        nn.utils.clip_grad_norm_(self.critic.parameters(), 0.5)
        critic.step()
        with torch.no_grad():
            for weight in self.critic.parameters():
                weight.clamp_(-0.3, 0.3)
        self.toggle_optimizer(maker)
        loss = -self.critic(self.maker(x)).mean()
        maker.zero_grad(set_to_none=False)
        self.manual_backward(loss)
        self.clip_gradients(maker, gradient_clip_val=0.1, gradient_clip_algorithm="norm")
        maker.step()
        self.untoggle_optimizer(maker)
        self.log("norm", self.maker.weight.norm().item())
        self.log("loss", loss)

    def configure_optimizers(self) -> Any:
        critic = torch.optim.RMSprop([*self.critic.parameters(), self.scale], lr=0.01)
        return critic, torch.optim.SGD(self.maker.parameters(), lr=0.1, momentum=0.9)
