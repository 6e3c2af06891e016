"""LightningModules and LightningDataModules as people write them, none of which knows of Lockstep."""

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
import torchmetrics
from lightning.pytorch.callbacks import BackboneFinetuning
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, random_split


class Blobs(Dataset[dict[str, Any]]):
    """Dictionaries, with noise that is drawn anew each time."""

    def __init__(self, samples: int, noise: float = 0.1) -> None:
        generator = torch.Generator().manual_seed(3)
        self.y = torch.arange(samples) % 3
        self.x = torch.randn(samples, 4, generator=generator) + self.y[:, None]
        self.noise = noise

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": self.x[index] + self.noise * torch.randn(4), "y": int(self.y[index])}


class BlobsData(pl.LightningDataModule):
    """A split that is drawn in setup; ragged batches in training, and in each evaluation."""

    def __init__(self, batch_size: int = 8, samples: int = 62, workers: int = 0, noise: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage: str | None = None) -> None:
        samples = Blobs(self.hparams["samples"], self.hparams["noise"])
        self.train, self.val, self.test = random_split(samples, [len(samples) - 24, 13, 11])

    def _loader(self, dataset: Any, shuffle: bool = False) -> DataLoader[Any]:
        options = {"num_workers": self.hparams["workers"], "persistent_workers": self.hparams["workers"] > 0}
        return DataLoader(dataset, batch_size=self.hparams["batch_size"], shuffle=shuffle, **options)

    def train_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.train, shuffle=True)

    def val_dataloader(self) -> list[DataLoader[Any]]:
        return [self._loader(self.val), self._loader(self.test)]

    def test_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.test)


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
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss/dataloader_idx_0"},
        }


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


class Growing(Thawing):
    """The layer joins the optimizer as a group of its own; the module is callable as BackboneFinetuning has it."""

    def __init__(self, adds: bool = True) -> None:
        super().__init__()
        self.adds = adds
        self.backbone = self.net[0]

    def on_train_epoch_start(self) -> None:
        if self.adds and self.current_epoch == 1:
            self.net[0].requires_grad_(True)
            optimizer: Any = self.optimizers()
            optimizer.add_param_group({"params": [*self.net[0].parameters()], "lr": 0.005})

    def configure_optimizers(self) -> Any:
        trained = [weight for weight in self.parameters() if weight.requires_grad]
        optimizer = torch.optim.Adam(trained, lr=0.02)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)]


class SizesData(BlobsData):
    """Other sizes in validation than in training; asks the trainer for the world, as people do."""

    def setup(self, stage: str | None = None) -> None:
        super().setup(stage)
        assert self.trainer is not None
        self.size = 12 // self.trainer.world_size

    def val_dataloader(self) -> list[DataLoader[Any]]:
        return [DataLoader(Blobs(14), batch_size=self.size)]


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


class Failing(Classifier):
    """At its fourth batch: of two virtual ranks that of the second, in the second step."""

    calls = 0

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        self.calls += 1
        if self.calls == 4:
            raise RuntimeError(f"of {len(batch)} parts")
        return super().training_step(batch, batch_idx)


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


class AutoEncoder(pl.LightningModule):
    """Nets that are handed in, a schedule by step, tuples of batches, hooks that change and count things."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.example_input_array = torch.zeros(1, 4)
        self.seen: list[str] = []
        self.largest = 0.0

    def forward(self, x: Tensor) -> Tensor:
        decoded: Tensor = self.decoder(self.encoder(x))
        return decoded

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        x, _ = batch
        loss = F.mse_loss(self(x), x)
        self.log_dict({"a": loss, "b": 3 * loss}, on_epoch=True)
        return {"loss": loss, "batch": batch_idx}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, _ = batch
        self.log("val_loss", F.mse_loss(self(x), x))
        gathered: Any = self.all_gather(torch.tensor(float(batch_idx)))
        assert gathered.max() == batch_idx

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        norms = [weight.grad.norm() for weight in self.parameters() if weight.grad is not None]
        self.log("grad", torch.stack(norms).norm())

    def on_after_backward(self) -> None:
        self.seen.append("backward")

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        self.clip_gradients(optimizer, gradient_clip_val=1.0, gradient_clip_algorithm="value")

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["seen"] = len(self.seen)
        checkpoint["statistics"] = {"mean": np.float64(len(self.seen)), "array": np.arange(3) * len(self.seen)}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        saved = checkpoint["statistics"]
        assert saved["array"].tolist() == [0, saved["mean"], 2 * saved["mean"]]
        self.seen = ["backward"] * checkpoint["seen"]


class Streamed(IterableDataset[tuple[Tensor, Tensor]]):
    """No length, no index; noise as it comes."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for index in range(self.samples):
            x = torch.full((4,), float(index % 5)) + 0.1 * torch.randn(4)
            yield x, x.sum()[None]


class StreamData(pl.LightningDataModule):
    def __init__(self, samples: int = 30, batch_size: int = 8) -> None:
        super().__init__()
        self.samples, self.batch_size = samples, batch_size

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(Streamed(self.samples), batch_size=self.batch_size)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(Streamed(12), batch_size=self.batch_size)


class Regressor(pl.LightningModule):
    """A loss by squared error, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))

    def training_step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.mse_loss(self.net(x), y)

    def validation_step(self, batch: Any) -> None:
        x, y = batch
        self.log("val_loss", F.mse_loss(self.net(x), y))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Late(pl.LightningModule):
    """Layers that exist only once the model is configured, in tensors of their own data."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.net: nn.Module | None = None

    def configure_model(self) -> None:
        if self.net is None:
            self.net = nn.Sequential(nn.Linear(4, self.width), nn.Tanh(), nn.Linear(self.width, 1))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        assert self.net is not None
        x, y = batch
        return F.mse_loss(self.net(x), y)

    def train_dataloader(self) -> DataLoader[Any]:
        x = torch.linspace(-1, 1, 80).reshape(20, 4)
        return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=6, shuffle=True)

    def configure_optimizers(self) -> Any:
        return torch.optim.LBFGS(self.parameters(), lr=0.5, max_iter=3)


@dataclass
class Example:
    """A batch of a class of their own."""

    x: Tensor
    y: Tensor


def collate(samples: Any) -> Example:
    x, y = zip(*samples, strict=True)
    return Example(torch.stack(x), torch.stack(y))


class UnevenData(pl.LightningDataModule):
    """Batches of sizes that no number of ranks shares equally, one of them a single sample."""

    batches = ([0, 1, 2, 3, 4], [5], [6, 7, 8], [9, 10], [11, 12, 13, 14, 15])

    def prepare(self, batches: Any) -> DataLoader[Any]:
        x = torch.linspace(-1, 1, 64).reshape(16, 4)
        return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_sampler=batches, collate_fn=collate)

    def train_dataloader(self) -> DataLoader[Any]:
        return self.prepare(self.batches)

    def val_dataloader(self) -> DataLoader[Any]:
        return self.prepare(self.batches[:3])


class Uneven(pl.LightningModule):
    """Values of steps over ranks, a schedule that steps by them, a metric that is kept for all epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
        self.val_loss = torchmetrics.MeanMetric()
        self.worst = torchmetrics.MaxMetric()

    def on_train_start(self) -> None:
        self.worst.reset()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = F.mse_loss(self.net(batch.x), batch.y)
        self.log("synced", loss, sync_dist=True)
        self.log("alone", loss)
        self.log("count", float(len(batch.y)), reduce_fx="sum", on_epoch=True)
        self.log("least", batch.x.min(), reduce_fx="min")
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.log("after", outputs["loss"], on_epoch=True)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.val_loss.update(F.mse_loss(self.net(batch.x), batch.y), len(batch.y))

    def on_validation_epoch_end(self) -> None:
        loss = self.val_loss.compute()
        self.val_loss.reset()
        self.worst(loss)
        self.log_dict({"val_loss": loss, "worst": self.worst.compute()})

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        return [optimizer], [{"scheduler": plateau, "interval": "step", "monitor": "alone"}]


class Untrained(Uneven):
    """No optimizer at all."""

    def configure_optimizers(self) -> None:
        return None


class Short(Uneven):
    """Leaves out the rest of its first epoch, and stops in the middle of the second."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        return -1 if self.current_epoch == 0 and batch_idx == 2 else None

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.trainer.should_stop = self.current_epoch == 1 and batch_idx == 1

    def test_dataloader(self) -> DataLoader[Any]:
        return UnevenData().val_dataloader()

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("test_loss", F.mse_loss(self.net(batch.x), batch.y))

    def train_dataloader(self) -> DataLoader[Any]:
        return UnevenData().train_dataloader()

    def val_dataloader(self) -> DataLoader[Any]:
        return UnevenData().val_dataloader()


class PairsData(pl.LightningDataModule):
    """Pairs that a plain net takes, ragged; classes are found in the tensors."""

    def __init__(self, samples: int = 61, batch_size: int = 8, loaders: int = 1) -> None:
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage: str | None = None) -> None:
        generator = torch.Generator().manual_seed(3)
        y = torch.arange(self.hparams["samples"] + 24) % 3
        x = torch.randn(len(y), 4, generator=generator) + y[:, None]
        self.train, self.val, self.test = random_split(TensorDataset(x, y), [self.hparams["samples"], 13, 11])

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.train, batch_size=self.hparams["batch_size"], shuffle=True)

    def val_dataloader(self) -> Any:
        loaders = [DataLoader(self.val, batch_size=5) for _ in range(self.hparams["loaders"])]
        return loaders[0] if len(loaders) == 1 else loaders

    def test_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.test, batch_size=5)


def pairs() -> dict[str, Any]:
    """The same splits without loaders."""
    data = PairsData()
    data.setup()
    return {"train": data.train, "val": data.val, "test": data.test}


class Plateaued(Regressor):
    """A schedule that looks at what `monitor` says."""

    def __init__(self, monitor: str | None = None, interval: str = "epoch") -> None:
        super().__init__()
        self.given = {"interval": interval} | ({} if monitor is None else {"monitor": monitor})

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, **self.given}}


class Skipping(Regressor):
    """It leaves out its second step on some ranks, or returns no loss."""

    def __init__(self, ranks: tuple[int, ...] = (0, 1), result: str = "None") -> None:
        super().__init__()
        self.ranks, self.result = ranks, result

    def training_step(self, batch: Any, batch_idx: int = 0) -> Any:
        loss = super().training_step(batch)
        if batch_idx == 1 and self.global_rank in self.ranks:
            return None if self.result == "None" else {"lost": loss}
        return loss


class Unused(Regressor):
    """Two layers have no part in the loss from a batch on."""

    def __init__(self, since: int = 0) -> None:
        super().__init__()
        self.since = since
        self.spare = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2, bias=False)])

    def training_step(self, batch: Any, batch_idx: int = 0) -> Tensor:
        loss = super().training_step(batch)
        spare = torch.stack([weight.sum() for weight in self.spare.parameters()]).sum()
        return loss if batch_idx >= self.since else torch.add(loss, spare, alpha=0)


class UserBackward(Regressor):
    """Manual optimization past Lightning."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int = 0) -> Tensor:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        loss = super().training_step(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss


class AcrossSamples(Regressor):
    """Its loss, or else a value that it logs, is no mean over samples."""

    def __init__(self, loss: bool = False) -> None:
        super().__init__()
        self.across = loss

    def training_step(self, batch: Any, batch_idx: int = 0) -> Tensor:
        x, _ = batch
        loss = super().training_step(batch)
        if self.across:
            return torch.add(loss, self.net(x).std())
        self.log("spread", x.std(), on_step=False, on_epoch=True)
        return loss


class ByClock(IterableDataset[tuple[Tensor, Tensor]]):
    """In another order each time, and in each process."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = random.Random(time.time_ns() + os.getpid())
        for number in order.sample(range(30), 30):
            x = torch.full((4,), float(number))
            yield x, x.sum()[None]


class ByClockData(StreamData):
    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(ByClock(), batch_size=self.batch_size)


class Drawing(Late):
    """Writes a picture of its own."""

    def on_train_start(self) -> None:
        self.logger.experiment.add_image("mine", torch.zeros(1, 2, 2), 1)  # type: ignore[union-attr]


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


class OnceByHand(Regressor):
    """Manual optimization of two nets, the second of which goes past Lightning; `zeroed`: what went past is dropped.

    skips: ranks that leave out their second step.
    """

    def __init__(self, zeroed: bool = False, skips: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.automatic_optimization, self.zeroed, self.skips = False, zeroed, skips
        self.second = nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int = 0) -> Any:
        if batch_idx == 1 and self.global_rank in self.skips:
            return None
        optimizers: Any = self.optimizers()
        first, second = optimizers
        loss = super().training_step(batch)
        first.zero_grad()
        self.manual_backward(loss)
        first.step()
        other = (self.second(batch[0]) - batch[1]).square().mean()
        second.zero_grad()
        other.backward(retain_graph=True)
        if self.zeroed:
            second.zero_grad()
            self.manual_backward(other)
        second.step()
        return loss

    def configure_optimizers(self) -> Any:
        first = [weight for name, weight in self.named_parameters() if "second" not in name]
        return [torch.optim.SGD(first, lr=0.1), torch.optim.SGD(self.second.parameters(), lr=0.1)]


class BlobPairs(Blobs):
    """The same without keys."""

    def __getitem__(self, index: int) -> Any:
        return tuple(super().__getitem__(index).values())
