"""LightningModules of the kinds that people train, as their tutorials write them; each with its own loaders."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def loaders(*tensors: Tensor, batch_size: int = 8, train: int = 38, **options: Any) -> tuple[Any, Any]:
    first, rest = [each[:train] for each in tensors], [each[train:] for each in tensors]
    shuffled = DataLoader(TensorDataset(*first), batch_size=batch_size, shuffle=True, **options)
    return shuffled, DataLoader(TensorDataset(*rest), batch_size=5)


class Loaders(pl.LightningModule):
    def train_dataloader(self) -> Any:
        return self.loaders()[0]

    def val_dataloader(self) -> Any:
        return self.loaders()[1]

    def loaders(self) -> tuple[Any, Any]:
        return loaders(drawn(61, 4), drawn(61, 4).sum(1, keepdim=True))


class Everything(Loaders):
    """What two engines could take for granted in the same way: a `backward`, a `frequency`, values of hooks, …"""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.losses = nn.Linear(4, 1), [torch.zeros(())]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = F.mse_loss(self.net(batch[0] + 0.1 * torch.randn_like(batch[0])), batch[1])
        self.losses.append(loss.detach())
        self.log("of_rank_0", loss, on_step=False, on_epoch=True, rank_zero_only=True)
        return loss

    def on_train_epoch_start(self) -> None:
        self.losses.clear()

    def on_before_zero_grad(self, optimizer: Any) -> None:
        self.log("before", self.net.weight.grad.norm() if self.net.weight.grad is not None else 1.0, on_epoch=True)

    def backward(self, loss: Tensor, *arguments: Any, **options: Any) -> None:
        super().backward(2 * loss, *arguments, **options)

    def on_train_epoch_end(self) -> None:
        self.log("of_the_epoch", torch.stack(self.losses).mean())

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        loss = F.mse_loss(self.net(batch[0] + torch.randn_like(batch[0])), batch[1])
        self.log_dict({"val_loss": float(abs(self.global_step - 4)), "val_error": loss})  # best within an epoch

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1 / int(self.trainer.estimated_stepping_batches))
        schedules = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5) for _ in range(2)]
        return [optimizer], [
            {"scheduler": schedules[0], "interval": "step", "frequency": 4},
            {"scheduler": schedules[1], "interval": "epoch", "frequency": 2},
        ]


class WGAN(Loaders):
    """Toggled models, a penalty by torch.autograd.grad, an accumulation by hand, two schedules."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4))
        self.critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        real, _ = batch
        one, two = self.optimizers()  # type: ignore[attr-defined]
        noise, is_last = torch.randn(len(real), 3).type_as(real), (batch_idx + 1) % 2 == 0
        with two.toggle_model(sync_grad=is_last):
            fake = self.generator(noise).detach()
            between = (0.3 * real + 0.7 * fake).requires_grad_()
            [slope] = torch.autograd.grad(self.critic(between).sum(), between, create_graph=True)
            loss = self.critic(fake).mean() - self.critic(real).mean() + (slope.norm(dim=1) - 1).square().mean()
            self.manual_backward(loss / 2)
            if is_last:
                two.step()
                two.zero_grad()
        self.log_dict({"critic": loss, "gap": slope.norm(dim=1).mean()}, prog_bar=True, on_epoch=True)
        if is_last:
            self.toggle_optimizer(one)
            loss = -self.critic(self.generator(noise)).mean()
            one.zero_grad()
            self.manual_backward(loss)
            self.clip_gradients(one, gradient_clip_val=0.1)  # type: ignore[arg-type]
            one.step()
            self.untoggle_optimizer(one)
            self.log("generator", loss)
            for schedule in self.lr_schedulers():  # type: ignore[union-attr]
                schedule.step()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.critic(batch[0]).mean())

    def configure_optimizers(self) -> Any:
        nets = (self.generator, self.critic)
        optimizers = [torch.optim.Adam(net.parameters(), lr=0.01, betas=(0.0, 0.9)) for net in nets]
        return optimizers, [torch.optim.lr_scheduler.StepLR(each, 2, 0.5) for each in optimizers]
