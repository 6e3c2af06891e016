"""Callbacks that change, copy or write down what they are called with."""

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback


class Halves(Callback):
    """Leaves other weights than those that were trained."""

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for parameter in pl_module.parameters():
            parameter.data *= 0.5
