"""LightningModules as people write them, none of which knows of Lockstep."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
import torchmetrics
from lightning.pytorch.callbacks import BackboneFinetuning
from torch import Tensor, nn
from torch.nn import functional as F


class Classifier(pl.LightningModule):
    """Metrics as objects, a plateau that monitors one of two validation loaders, hyper-parameters."""

    def __init__(self, lr: float = 0.02, width: int = 16, norm: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.save_hyperparameters()
        norms: nn.Module = nn.BatchNorm1d(width) if norm else nn.Identity()
        self.net = nn.Sequential(
            nn.Linear(4, width, bias=not norm), norms, nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 3)
        )
        self.train_acc = torchmetrics.Accuracy("multiclass", num_classes=3)
        self.val_f1 = nn.ModuleList(
            torchmetrics.F1Score("multiclass", num_classes=3, average="macro") for _ in range(2)
        )

    def step(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        logits = self.net(batch["x"])
        return logits, F.cross_entropy(logits, batch["y"])

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        logits, loss = self.step(batch)
        self.train_acc(logits, batch["y"])
        self.log("train_loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        self.log("train_acc", self.train_acc, on_step=True, on_epoch=True)
        self.log("largest", logits.max(), on_step=False, on_epoch=True, reduce_fx="max")
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        logits, loss = self.step(batch)
        self.val_f1[dataloader_idx](logits, batch["y"])
        self.log("val_loss", loss, sync_dist=dataloader_idx == 1)
        self.log("val_cost", loss, on_step=True, on_epoch=True, prog_bar=True)
        metric: Any = self.val_f1[dataloader_idx]
        self.log("val_f1", metric)
        self.log("val_count", float(len(batch["y"])), reduce_fx="sum")

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Tensor]:
        _, loss = self.step(batch)
        self.log_dict({"test_loss": loss, "test_twice": 2 * loss})
        return {"loss": loss}

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams["lr"])
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss/dataloader_idx_0"}}


class Calls(nn.Module):
    """Counts its training batches, outside parameters and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.training
        return x

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": self.calls}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.calls = state["calls"]


class Thawing(Classifier):
    """Its first layer is frozen, and trained from the second epoch on."""

    def __init__(self, dropout: float = 0.0, counts: bool = True) -> None:
        super().__init__(norm=False, dropout=dropout)
        if counts:
            self.net.append(Calls())
        self.net[0].requires_grad_(False)

    def on_train_epoch_start(self) -> None:
        if self.current_epoch == 1:
            self.net[0].requires_grad_(True)


class Tuned(pl.LightningModule):
    """A backbone with statistics, a schedule of numpy's numbers; asks the trainer for its loader."""

    def __init__(self, cosine: bool = False) -> None:
        super().__init__()
        self.cosine = cosine
        self.backbone = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 3)

    def on_train_epoch_start(self) -> None:
        loader: Any = self.trainer.train_dataloader
        assert (len(loader.dataset), loader.batch_size) == (38, 8)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        return F.cross_entropy(self.head(self.backbone(batch["x"])), batch["y"])

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.log("val_loss", F.cross_entropy(self.head(self.backbone(batch["x"])), batch["y"]))
        self.log("val_size", float(len(batch["y"])), reduce_fx="max")

    def configure_optimizers(self) -> Any:
        trained = [weight for weight in self.parameters() if weight.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=0.1)
        if not self.cosine:
            return optimizer
        return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 + 0.5 * np.cos(step))]


class ThawAll(BackboneFinetuning):
    """Freezes the statistics of BatchNorm, too."""

    def freeze_before_training(self, pl_module: pl.LightningModule) -> None:
        backbone: Any = pl_module.backbone
        self.freeze(backbone, train_bn=False)


class GAN(pl.LightningModule):
    """Manual optimization: two optimizers that are toggled, one of them stepped every other batch, noise of its own."""

    def __init__(self, width: int = 12, dropout: float = 0.0) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 4))
        self.discriminator = nn.Sequential(nn.Linear(4, width), nn.LeakyReLU(0.2), nn.Linear(width, 1))
        self.calls = 0

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        optimizers: Any = self.optimizers()
        one, two = optimizers
        real = batch["x"]
        noise = batch["x"][:, :3]
        ones, zeros = real.new_ones(len(real), 1), real.new_zeros(len(real), 1)

        self.toggle_optimizer(one)
        loss = F.binary_cross_entropy_with_logits(self.discriminator(self.generator(noise)), ones)
        one.zero_grad()
        self.manual_backward(loss)
        one.step()
        self.untoggle_optimizer(one)
        self.log("g_loss", loss, prog_bar=True)

        self.toggle_optimizer(two)
        fake = self.discriminator(self.generator(noise).detach())
        loss = (
            F.binary_cross_entropy_with_logits(self.discriminator(real), ones)
            + F.binary_cross_entropy_with_logits(fake, zeros)
        ) / 2
        two.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(two, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
        if batch_idx % 2 == 0:
            two.step()
        self.untoggle_optimizer(two)
        self.log("d_loss", loss, prog_bar=True)

    def on_train_epoch_end(self) -> None:
        schedule: Any = self.lr_schedulers()
        schedule.step()
        self.log("epochs_seen", float(self.current_epoch + 1))

    def configure_optimizers(self) -> Any:
        one = torch.optim.Adam(self.generator.parameters(), lr=0.01, betas=(0.5, 0.999))
        two = torch.optim.Adam(self.discriminator.parameters(), lr=0.01, betas=(0.5, 0.999))
        return [one, two], [torch.optim.lr_scheduler.ExponentialLR(one, 0.5)]


class Tracing(Classifier):
    """Draws random numbers in training and in validation; the worst loss of all epochs is a metric of its own,
    and two have values before training.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.worst, self.before = torchmetrics.MaxMetric(), torchmetrics.MaxMetric()
        self.starts = torchmetrics.SumMetric()

    def on_fit_start(self) -> None:
        self.before.update(5.0)
        self.starts.update(1.0)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        noise = torch.randn(1)
        self.log("noise", noise.abs().mean())
        loss: Tensor = super().training_step({**batch, "x": batch["x"] + 0.1 * noise}, batch_idx)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        super().validation_step(batch, batch_idx, dataloader_idx)
        if self.trainer.sanity_checking and self.trainer.is_global_zero:
            with (Path(self.trainer.default_root_dir) / "checked.txt").open("a") as file:
                file.write(f"{dataloader_idx}:{batch_idx} ")
        self.worst(1000 / (1 + self.trainer.global_step) + torch.rand(()))

    def on_validation_epoch_end(self) -> None:
        if not self.trainer.sanity_checking:
            self.worst.update(self.trainer.global_step)
            values = {"worst": self.worst, "before": self.before, "starts": self.starts}
            self.log_dict({name: metric.compute() for name, metric in values.items()})


class Unseen(Classifier):
    """Brings a callback that changes how many batches a step has."""

    def configure_callbacks(self) -> Any:
        return pl.callbacks.GradientAccumulationScheduler({0: 2})
