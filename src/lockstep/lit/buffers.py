"""All ranks measure the same net."""

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from lockstep.parallel.buffers import broadcast_buffers


class BroadcastBuffers(Callback):
    """Before a net is measured."""

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        broadcast_buffers(pl_module)

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        broadcast_buffers(pl_module)
