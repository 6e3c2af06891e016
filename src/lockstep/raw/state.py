"""What the raw engine puts into a checkpoint, and takes out again, by Lightning's names: either engine reads it."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lockstep.checkpoint.content import SCALER, Progress, own_names, prefixed
from lockstep.raw.precision import Precision
from lockstep.strategies import Strategy


class TrainingState:
    """Weights, optimizer, schedule and scaler, which are the same on every rank."""

    def __init__(
        self,
        strategy: Strategy,
        net: nn.Module,
        optimizer: Optimizer,
        scheduler: LRScheduler | None,
        precision: Precision,
    ) -> None:
        self.strategy = strategy
        self.net, self.optimizer, self.scheduler, self.scaler = net, optimizer, scheduler, precision.scaler

    def state_dict(self, at: Progress) -> dict[str, Any]:
        """`at` is between two batches. To be called by every rank."""
        checkpoint = {
            "epoch": at.epochs if at.batch else at.epochs - 1,  # as Lightning counts: of the epoch that it is from
            "global_step": at.steps,
            "state_dict": prefixed(self.strategy.state_dict(self.net)),
            "optimizer_states": [self.strategy.optimizer_state(self.optimizer)],
            "lr_schedulers": [] if self.scheduler is None else [self.scheduler.state_dict()],
        }
        return checkpoint | ({SCALER: self.scaler.state_dict()} if self.scaler.is_enabled() else {})

    def load_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        self.strategy.load_state_dict(self.net, own_names(checkpoint))
        self.strategy.load_optimizer_state(self.optimizer, checkpoint["optimizer_states"][0])
        if self.scheduler is not None and checkpoint["lr_schedulers"]:
            self.scheduler.load_state_dict(checkpoint["lr_schedulers"][0])
        if self.scaler.is_enabled() and SCALER in checkpoint:
            self.scaler.load_state_dict(checkpoint[SCALER])
