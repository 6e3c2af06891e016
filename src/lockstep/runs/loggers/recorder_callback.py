"""The callback that records the training of a stock Trainer, for `lockstep.compare`."""

import math
import os
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch.optim import Optimizer

from lockstep.runs.recorder import Recorder


class RecorderCallback(Callback):
    """A callback that records `Trainer.fit` in `folder`, and `trainer.callback_metrics` after each validation."""

    recorder: Recorder

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = folder
        self.validated: dict[str, Any] = {}

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        precision = str(trainer.precision) if "mixed" in str(trainer.precision) else ""
        self.recorder = Recorder(self.folder, module, *trainer.optimizers, precision=precision)
        self.recorder.epoch, self.recorder.last_step = trainer.current_epoch + 1, trainer.global_step

    def on_before_optimizer_step(self, trainer: Trainer, module: LightningModule, optimizer: Optimizer) -> None:
        self.recorder.gradients(optimizer)

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any, _: int) -> None:
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is not None or self.recorder.norms:  # else the module skips the batch
            self.recorder.add(math.nan if loss is None else loss * trainer.accumulate_grad_batches, batch)
        if self.recorder.norms:
            self.recorder.end_step()

    def on_validation_end(self, trainer: Trainer, module: LightningModule) -> None:
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        if trainer.is_last_batch:
            self.validated = {**trainer.callback_metrics}
        else:
            self.recorder.log(**trainer.callback_metrics)

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        self.recorder.end_epoch(**self.validated)
        self.validated = {}

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        self.recorder.close()
