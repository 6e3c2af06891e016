"""Callbacks that change, copy or write down what they are called with."""

import copy
import json
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback


class Meddles(Callback):
    """Trains only the last parameter in the first two batches, within an epoch; keeps a copy of the module, and returns
    what only a module's hook ends an epoch by.
    """

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        group = trainer.optimizers[0].param_groups[0]
        self.frozen, group["params"] = group["params"][:-1], group["params"][-1:]

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> Any:
        if batch_idx == 2 and self.frozen:
            trainer.optimizers[0].param_groups[0]["params"].extend(self.frozen)
            self.frozen = []
        return -1 if batch_idx == 1 else None

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.copy = copy.deepcopy(pl_module)
        assert trainer.optimizers[0].param_groups[0]["lr"] > 0


class Halves(Callback):
    """Leaves other weights than those that were trained."""

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for parameter in pl_module.parameters():
            parameter.data *= 0.5


class History(Callback):
    """Writes what the trainer's metrics are at the end of each batch and stage into history.jsonl."""

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self.write(trainer, "batch")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert not trainer.logged_metrics, "those of the sanity check"

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if dataloader_idx == 0:
            self.write(trainer, "batch")

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.write(trainer, "val")

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert not trainer.callback_metrics, "those of training"

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.write(trainer, "train")

    def write(self, trainer: pl.Trainer, stage: str) -> None:
        kinds = (trainer.callback_metrics, trainer.logged_metrics, trainer.progress_bar_metrics)
        metrics = [{name: float(value) for name, value in kind.items()} for kind in kinds]
        with (Path(trainer.default_root_dir) / f"history_{trainer.global_rank}.jsonl").open("a") as file:
            file.write(json.dumps([stage, *metrics]) + "\n")
