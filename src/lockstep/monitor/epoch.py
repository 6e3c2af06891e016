"""What is shown of an epoch beside its numbers: pictures, precision over recall, histograms. By rank 0 alone."""

import time
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lockstep.loggers import Loggers
from lockstep.loggers.tensorboard import TensorBoard
from lockstep.plan import Plan
from lockstep.schemas.logger import tensorboard_of
from lockstep.sums.running import PredictionSamples

SHARE = 0.005
"""Of a run's time, that pictures may take to draw, and as much to write: after t seconds of it none for t / SHARE."""


class EpochMonitor:
    """Both engines call `end_steps`, `begin_validation`, if there is one, and `end_epoch`, in this order."""

    def __init__(self, plan: Plan, loggers: Loggers, net: nn.Module, shape: tuple[int, ...]) -> None:
        """`shape`: of a sample."""
        self.plan, self.net, self.shape = plan, net, shape
        self.board, self.options = loggers.board, tensorboard_of(plan)
        takes_part = self.board is not None or plan.strategy.sharded  # each rank has a shard of what rank 0 shows
        self.histograms = self.options.histograms if self.options is not None and takes_part else 0
        self.shown: PredictionSamples | None = None
        self.gradients: Mapping[str, Tensor] = {}
        self.rests_until = 0.0

    def end_steps(self, epoch: int) -> None:
        """After the last step of an epoch, from 1: a copy of its gradients, since a validation may clear them."""
        if self._histograms_due(epoch):
            full_tensor = self.plan.strategy.tensors.full_tensor
            self.gradients = {
                name: full_tensor(parameter.grad).detach().clone()
                for name, parameter in self.net.named_parameters()
                if parameter.grad is not None
            }

    def begin_validation(self) -> PredictionSamples | None:
        """Return what is to collect the samples to show, if any."""
        self.shown, options = None, self.options
        classed = self.plan.objective.classes and self.plan.objective.ignored is None
        if self.board is not None and options is not None and classed and (options.images or options.pr_curves):
            self.shown = PredictionSamples(options.pr_curves)
        return self.shown

    def end_epoch(self, validated: bool, counts: Tensor | None, epoch: int, step: int) -> None:
        """After an epoch, from 1, and its validation. To be called by every rank.

        Args:
            counts: the confusion counts of all ranks, where there are classes.
        """
        if self._histograms_due(epoch):
            self._show_histograms(step)
        if self.board is None or self.options is None or not validated:
            return
        if self.options.images:
            self._show_pictures(self.board, counts, self.plan.steps.is_finished(epoch, step), step)
        if self.shown is not None and self.shown.scores:
            _show_pr_curves(self.board, self.shown.scores, step)

    def _histograms_due(self, epoch: int) -> bool:
        return self.histograms > 0 and epoch % self.histograms == 0

    def _show_histograms(self, step: int) -> None:
        for name, parameter in self.net.named_parameters():
            weight = self.plan.strategy.tensors.full_tensor(parameter.detach())  # on every rank: it may be sharded
            if self.board is not None:
                self.board.log_histogram(f"weights/{name}", weight, step)
                if name in self.gradients:
                    self.board.log_histogram(f"weights/{name}/gradient", self.gradients[name], step)
        self.gradients = {}

    def _show_pictures(self, board: TensorBoard, counts: Tensor | None, last: bool, step: int) -> None:
        """The first and the last validation have them, and those between as time allows."""
        began = time.perf_counter()
        if began < self.rests_until and not last:
            return
        from lockstep.monitor.pictures import show_pictures  # with PIL

        worst = None if self.shown is None else self.shown.worst
        net = None if self.plan.strategy.sharded else self.net
        show_pictures(board, counts, worst, net, self.shape, step)
        now = time.perf_counter()
        self.rests_until = now + (now - began) / SHARE


def _show_pr_curves(board: TensorBoard, scores: list[tuple[Tensor, Tensor]], step: int) -> None:
    probabilities, targets = (torch.cat(column) for column in zip(*scores, strict=True))
    for label in range(probabilities.shape[1]):
        board.log_pr_curve(f"val/class {label}", targets == label, probabilities[:, label], step)
