"""Checkpoints: what the raw engine puts into one, and what it takes out again. Either engine reads them."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lockstep.checkpoint.content import SCALER, Progress, own_names, state_of
from lockstep.checkpoint.saving import CheckpointManager, save
from lockstep.raw.precision import Precision
from lockstep.raw.report import Report
from lockstep.running_sums import Sums


class Checkpoints:
    """Weights, optimizer, schedule and scaler are the same on every rank; the keeper adds what is not."""

    def __init__(
        self,
        manager: CheckpointManager,
        net: nn.Module,
        optimizer: Optimizer,
        scheduler: LRScheduler | None,
        precision: Precision,
        report: Report,
    ) -> None:
        self.manager, self.net, self.report = manager, net, report
        self.optimizer, self.scheduler, self.precision = optimizer, scheduler, precision

    def save(self, at: Progress, results: Mapping[str, float], sums: Mapping[str, Sums]) -> None:
        """Save where training stands, between two batches. To be called by every rank."""
        section = self.manager.extra_state(at, results, sums, self.net)
        if self.manager.rank != 0:
            return
        self.report.flush()
        save(self._own(at) | section, self.manager.last)

    def _own(self, at: Progress) -> dict[str, Any]:
        checkpoint = {
            "epoch": at.epochs if at.batch else at.epochs - 1,  # as Lightning counts: of the epoch that it is from
            "global_step": at.steps,
            "state_dict": state_of(self.net),
            "optimizer_states": [self.optimizer.state_dict()],
            "lr_schedulers": [] if self.scheduler is None else [self.scheduler.state_dict()],
        }
        return checkpoint | ({SCALER: self.precision.scaler.state_dict()} if self.precision.scaler.is_enabled() else {})

    def restore(self, checkpoint: Mapping[str, Any]) -> None:
        """All that training goes on from, but what the keeper has of each rank."""
        self.net.load_state_dict(own_names(checkpoint["state_dict"]))
        self.optimizer.load_state_dict(checkpoint["optimizer_states"][0])
        if self.scheduler is not None and checkpoint["lr_schedulers"]:
            self.scheduler.load_state_dict(checkpoint["lr_schedulers"][0])
        if self.precision.scaler.is_enabled() and SCALER in checkpoint:
            self.precision.scaler.load_state_dict(checkpoint[SCALER])
