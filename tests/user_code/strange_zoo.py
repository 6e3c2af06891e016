"""LightningModules of the kinds that people train, as their tutorials write them; each with its own loaders."""

from typing import Any

import lightning.pytorch as pl
import torch
import torchmetrics
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


class MaskedLM(Loaders):
    """A collate function that masks tokens, groups of weight decay, tied weights, a warm-up, a metric object."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(12, 8), nn.Parameter(0.1 * drawn(7, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 12)
        self.head.weight = self.embedding.weight
        self.perplexity = torchmetrics.MeanMetric()

    @staticmethod
    def collate(samples: Any) -> dict[str, Tensor]:
        tokens = torch.stack([each for [each] in samples])
        is_masked = torch.rand(tokens.shape) < 0.3
        is_masked[:, 0] = True
        return {"input_ids": tokens.masked_fill(is_masked, 0), "labels": tokens.masked_fill(~is_masked, -100)}

    def loaders(self) -> tuple[Any, Any]:
        tokens = (drawn(61, 7).cumsum(1).abs() * 3).long() % 11 + 1
        train, val = TensorDataset(tokens[:38]), TensorDataset(tokens[38:])
        first = DataLoader(train, batch_size=8, shuffle=True, collate_fn=self.collate)
        return first, DataLoader(val, batch_size=8, collate_fn=self.collate)

    def forward(self, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(self.encoder(self.embedding(input_ids) + self.position))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100), (labels != -100).sum()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss, tokens = self(**batch)
        self.log("train_loss", loss, batch_size=int(tokens))
        return {"loss": loss, "weight": tokens}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        loss, tokens = self(**batch)
        self.perplexity.update(loss.exp(), tokens)
        self.log("val_loss", loss, batch_size=int(tokens))
        self.log("perplexity", self.perplexity)

    def configure_optimizers(self) -> Any:
        spared = [each for each in self.parameters() if each.dim() < 2]
        decayed = [each for each in self.parameters() if each.dim() >= 2]
        groups = [{"params": decayed, "weight_decay": 0.01}, {"params": spared, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=0.01)
        warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
        return [optimizer], [{"scheduler": warmup, "interval": "step", "frequency": 2, "name": "rate"}]
