"""Checkpoints: `best.ckpt` and `last.ckpt`, written by rank 0, read by both engines."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lockstep.checkpoint import own_names, state_of
from lockstep.plan import Plan
from lockstep.raw.precision import Precision

SCALER = "MixedPrecision"
"""Lightning's name for the state of the gradient scaler."""


class Checkpoints:
    """Saves at each epoch's end; the best is the first of the best by the plan's `monitor`."""

    def __init__(
        self,
        plan: Plan,
        rank: int,
        net: nn.Module,
        optimizer: Optimizer,
        scheduler: LRScheduler | None,
        precision: Precision,
    ) -> None:
        self.plan, self.rank, self.net = plan, rank, net
        self.optimizer, self.scheduler, self.precision = optimizer, scheduler, precision
        self.best: float | None = None

    def save(self, epochs: int, steps: int, metrics: Mapping[str, float]) -> None:
        """Save what `epochs` epochs of `steps` optimizer steps, in all, have led to."""
        if self.rank != 0:
            return
        folder = Path(self.plan.run_dir) / "checkpoints"
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint = self._checkpoint(epochs, steps)
        loss = self._monitored(metrics)
        if self.best is None or loss < self.best:
            self.best = loss
            write(checkpoint, folder / "best.ckpt")
        write(checkpoint, folder / "last.ckpt")

    def _monitored(self, metrics: Mapping[str, float]) -> float:
        """What is best when it is least; rounded as Lightning rounds it, so that ties are the same; NaN is worst."""
        name, mode = self.plan.monitor
        value = torch.tensor(metrics[name], dtype=torch.float32).item()
        return math.inf if math.isnan(value) else value if mode == "min" else -value

    def restore(self, checkpoint: Mapping[str, Any], *, training: bool) -> None:
        """Load the net, and what else training goes on from."""
        self.net.load_state_dict(own_names(checkpoint["state_dict"]))
        if not training:
            return
        self.optimizer.load_state_dict(checkpoint["optimizer_states"][0])
        if self.scheduler is not None and checkpoint["lr_schedulers"]:
            self.scheduler.load_state_dict(checkpoint["lr_schedulers"][0])
        if self.precision.scaler.is_enabled() and SCALER in checkpoint:
            self.precision.scaler.load_state_dict(checkpoint[SCALER])

    def _checkpoint(self, epochs: int, steps: int) -> dict[str, Any]:
        checkpoint = {
            "epoch": epochs - 1,
            "global_step": steps,
            "state_dict": state_of(self.net),
            "optimizer_states": [self.optimizer.state_dict()],
            "lr_schedulers": [] if self.scheduler is None else [self.scheduler.state_dict()],
        }
        return checkpoint | ({SCALER: self.precision.scaler.state_dict()} if self.precision.scaler.is_enabled() else {})


def write(checkpoint: dict[str, Any], path: Path) -> None:
    """A reader sees the whole file or the one before."""
    part = path.with_name(f".{path.name}.part")
    torch.save(checkpoint, part)
    part.replace(path)
