"""Lightning callbacks of Lockstep."""

from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule

from lockstep.callbacks.confusion_matrix import ConfusionMatrix
from lockstep.callbacks.pictures import Pictures
from lockstep.config_error import config_error

__all__ = ["ConfusionMatrix", "FittedLine", "Pictures"]


class FittedLine(Callback):
    """Logs slope f(1) - f(0), intercept f(0) and f(x) for each x to predict as predict/x, at the end of a test."""

    def __init__(self, predict: Sequence[float] = ()) -> None:
        self.predict = [float(x) for x in predict]

    def on_test_epoch_end(self, trainer: Any, pl_module: LightningModule) -> None:
        weight = next(pl_module.parameters())
        x = torch.tensor([0.0, 1.0, *self.predict], dtype=weight.dtype, device=pl_module.device)
        sample_shape = getattr(trainer.datamodule, "sample_shape", None) or (1,)
        outputs = pl_module(x[:, None]) if tuple(sample_shape) == (1,) else None
        if outputs is None or outputs.numel() != len(x):
            reason = "FittedLine needs a net from one number to one number"
            raise config_error("callbacks", "fitted_line", reason, "callbacks=none")
        at_zero, at_one, *rest = outputs.flatten().tolist()
        line = {"slope": at_one - at_zero, "intercept": at_zero}
        line |= {f"predict/{value:g}": y for value, y in zip(self.predict, rest, strict=True)}
        for name, value in line.items():
            pl_module.log(name, value, reduce_fx="max")  # the same on every rank: a mean would round
