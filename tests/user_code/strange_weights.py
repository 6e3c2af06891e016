"""LightningModules that do with their weights what they like, wherever they like."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Rows(pl.LightningDataModule):
    """Ragged batches in training, and in validation one of a single sample."""

    def train_dataloader(self) -> DataLoader[Any]:
        x = torch.linspace(-1, 1, 88).reshape(22, 4)
        return DataLoader(TensorDataset(x, x.sin().sum(1, keepdim=True)), batch_size=6, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        x = torch.linspace(-2, 2, 28).reshape(7, 4)
        return DataLoader(TensorDataset(x, x.sin().sum(1, keepdim=True)), batch_size=6)


class Teacher(pl.LightningModule):
    """A slow copy of its weights that replaces its data, a temperature without dimension, tied and unused weights,
    layers called past `forward`, weights frozen in the first epoch and clamped in each step, hooks that compute.
    """

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 5))
        self.slow = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 5)).requires_grad_(False)
        self.slow.load_state_dict(self.body.state_dict())
        self.memory = nn.LSTM(5, 3, batch_first=True)
        self.head = nn.Linear(3, 1)
        self.tied = nn.Linear(3, 1, bias=False)
        self.tied.weight = self.head.weight
        self.direct = nn.Parameter(torch.randn(5, 5).t())  # not contiguous
        self.temperature = nn.Parameter(torch.tensor(0.7))
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.tied(self.memory(self.body(x)[:, None])[0][:, 0])
        return outputs

    def follow(self) -> None:
        for slow, fast in zip(self.slow.parameters(), self.body.parameters(), strict=True):
            slow.data = 0.9 * slow.data + 0.1 * fast.data

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        x, y = batch
        self.follow()
        with torch.no_grad():
            wanted = self.slow(x)
        between = F.linear(self.body[0](x), self.direct)
        hidden, _ = self.memory(self.body(x)[:, None])
        weights = sum(
            weight.square().sum() for weight in self.parameters() if weight.requires_grad and weight.shape[:1] != (2,)
        )
        loss = F.mse_loss(self.head(hidden[:, 0]) * self.temperature, y) + F.mse_loss(between, wanted) + 1e-3 * weights
        self.log("temperature", self.temperature)
        return {"loss": loss, "hidden": hidden}

    def on_train_epoch_start(self) -> None:
        self.body[0].requires_grad_(self.current_epoch > 0)

    def on_after_backward(self) -> None:
        norms = {name: weight.grad.norm().item() for name, weight in self.named_parameters() if weight.grad is not None}
        self.log("largest_gradient", max(norms.values()))

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for weight in group["params"]:
                if weight.grad is not None and weight.grad.norm().item() > 0.5:
                    weight.grad.mul_(0.5)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.log("weight", self.head.weight.norm().item())
        for weight in self.body.parameters():
            weight.data = weight.data.clamp(-0.6, 0.6)

    def on_train_epoch_end(self) -> None:
        with torch.no_grad():
            self.log("sampled", self(torch.ones(3, 4, dtype=self.direct.dtype)).sum())

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", F.mse_loss(self(x), y))

    def configure_optimizers(self) -> Any:
        groups: list[dict[str, Any]] = [
            {"params": [*self.body.parameters(), self.temperature]},
            {"params": [*self.memory.parameters()]},
        ]
        rest = [
            weight for name, weight in self.named_parameters() if name.split(".")[0] in ("head", "direct", "unused")
        ]
        return torch.optim.Adam([*groups, {"params": rest, "weight_decay": 0.01}], lr=0.05)


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
