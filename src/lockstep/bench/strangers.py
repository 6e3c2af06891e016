"""A LightningModule as anybody writes it, with its data, and the Trainer that Lightning itself would run it with.

The epochs are of small steps, where what is around them counts most. `stock`: an ordinary Trainer with TensorBoard.
"""

import time
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from lockstep.bench.context import BenchPayload
from lockstep.launch.topology import RankContext
from lockstep.lit.trainer import silence_warnings
from lockstep.random_state import seed_all
from lockstep.sums.phases import synchronize
from lockstep.targets.locate import create

Batch = tuple[Tensor, Tensor]


class Rows(Dataset[Batch]):
    """One sample at a time."""

    def __init__(self, samples: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(samples, 64, generator=generator)
        self.targets = torch.randint(0, 10, (samples,), generator=generator)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Batch:
        return self.inputs[index], self.targets[index]


class Data(pl.LightningDataModule):
    """In tensors, or a sample at a time, in this process or by workers."""

    def __init__(self, samples: int, tensors: bool, workers: int = 0) -> None:
        super().__init__()
        self.samples, self.tensors, self.workers = samples, tensors, workers

    def _loader(self, samples: int, shuffle: bool) -> DataLoader[Any]:
        rows = Rows(samples)
        own: Dataset[Any] = TensorDataset(rows.inputs, rows.targets) if self.tensors else rows
        return DataLoader(own, batch_size=32, shuffle=shuffle, num_workers=self.workers)

    def train_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.samples, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.samples // 10, shuffle=False)


class Module(pl.LightningModule):
    """Three layers, a loss that is logged by step and by epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("val_loss", F.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Stopwatch(Callback):
    """Seconds of training, validation left out, as `EpochTiming` counts them."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.since: float | None = None

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.since = time.perf_counter()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop(pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop(pl_module)

    def _stop(self, module: pl.LightningModule) -> None:
        if self.since is not None:
            synchronize(module.device)
            self.seconds += time.perf_counter() - self.since
            self.since = None


def run(payload: BenchPayload, context: RankContext) -> float:
    """Called by the launcher: seconds of training by Lightning's own Trainer, as the engines count them."""
    silence_warnings()
    plan, watch = payload.plan, Stopwatch()
    seed_all(plan.seed)
    module, data = create("model", plan.model.call), create("data", plan.data.call)  # type: ignore[union-attr]
    trainer = pl.Trainer(
        max_epochs=plan.max_epochs,
        accelerator=plan.accelerator,
        logger=TensorBoardLogger(plan.run_dir),
        log_every_n_steps=plan.log_every_n_steps,
        callbacks=[watch],
        default_root_dir=plan.run_dir,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, datamodule=data)
    return watch.seconds
