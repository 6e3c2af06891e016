"""The process's own signal handlers, restored where a version of Lightning cannot be kept from setting its own."""

import signal
import threading
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback


class RestoreSignalHandlers(Callback):
    """Lightning sets handlers between `setup` and the start of training or testing."""

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        settable = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
        self.handlers: dict[int, Any] = {number: signal.getsignal(number) for number in settable}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._restore()

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._restore()

    def _restore(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number, handler in self.handlers.items():
            if signal.getsignal(number) != handler:
                signal.signal(number, handler)
