"""Code that ends a rank, or keeps it, in the ways that people met."""

import os
import threading
import time

import torch
import torch.distributed as dist
from strange_data import Noisy  # type: ignore[import-not-found]
from strange_modules import Classifier  # type: ignore[import-not-found]
from torch import Tensor


class Ending(Classifier):  # type: ignore[misc]
    """Rank 1 goes wrong in its second batch; all ranks gather tensors as large as their slices of each batch."""

    def __init__(self, how: str = "") -> None:
        super().__init__(norm=False)
        self.how = how

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        if self.how == "gathers":
            self.all_gather(batch["x"])
        if self.how == "gathers by torch":
            dist.all_gather([torch.empty_like(batch["x"]) for _ in range(2)], batch["x"])
        if batch_idx == 1 and os.environ.get("RANK") == "1":
            self.end()
        loss: Tensor = super().training_step(batch, batch_idx)
        return loss

    def end(self) -> None:
        if self.how == "has a thread":
            threading.Thread(target=time.sleep, args=(3600,)).start()
        while self.how == "loops":
            time.sleep(0.01)
        if self.how == "is interrupted":
            raise KeyboardInterrupt


class Samples(Noisy):  # type: ignore[misc]
    """At sample 40 its iterator ends."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index == 40:
            next(iter(()))
        sample: tuple[Tensor, int] = super().__getitem__(index)
        return sample
