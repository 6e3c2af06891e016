"""What is shown of an epoch beside its numbers, on rank 0: pictures, precision over recall, histograms."""

import time
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lockstep.loggers import Loggers
from lockstep.monitor.samples import PredictionSamples
from lockstep.parallel.tensor_layout import full_tensor
from lockstep.plan import Plan
from lockstep.schemas.logger import tensorboard_of

SHARE = 0.005
"""The share of a run's time for drawing pictures, and as much for writing them: after t seconds none for t / SHARE."""


class EpochMonitor:
    """Both engines call `end_steps`, `begin_validation` if there is one, and `end_epoch`, in this order."""

    def __init__(self, plan: Plan, loggers: Loggers, net: nn.Module, shape: tuple[int, ...]) -> None:
        self.plan, self.net, self.shape = plan, net, shape
        self.board, self.options = loggers.board, tensorboard_of(plan)
        takes_part = self.board is not None or plan.strategy.sharded  # each rank has a shard of what rank 0 shows
        self.histograms = self.options.histograms if self.options is not None and takes_part else 0
        self.samples: PredictionSamples | None = None
        self.gradients: Mapping[str, Tensor] = {}
        self.next_pictures = 0.0

    def end_steps(self, epoch: int) -> None:
        """Copy the gradients of the last step of an epoch (from 1), since a validation may clear them."""
        if self._histograms_due(epoch):
            self.gradients = {
                name: full_tensor(parameter.grad).detach().clone()
                for name, parameter in self.net.named_parameters()
                if parameter.grad is not None
            }

    def begin_validation(self) -> PredictionSamples | None:
        """Return what collects the samples to show, if any are."""
        self.samples, options = None, self.options
        classified = self.plan.objective.classes and self.plan.objective.ignored is None
        if self.board is not None and options is not None and classified and (options.images or options.pr_curves):
            self.samples = PredictionSamples(options.pr_curves)
        return self.samples

    def end_epoch(self, validated: bool, counts: Tensor | None, epoch: int, step: int) -> None:
        """Show an epoch (from 1), and its validation with the confusion counts of all ranks. Every rank calls it."""
        if self._histograms_due(epoch):
            self._show_histograms(step)
        if self.board is None or self.options is None or not validated:
            return
        if self.options.images and not self.plan.model.lightning:
            self._show_pictures(counts, self.plan.steps.is_finished(epoch, step), step)
        if self.samples is not None and self.samples.scores:
            probabilities, targets = (torch.cat(column) for column in zip(*self.samples.scores, strict=True))
            for index, (label, scores) in enumerate(zip(self.plan.data.labels, probabilities.T, strict=False)):
                self.board.writer.add_pr_curve(f"val/class {label}", targets == index, scores, step)

    def _histograms_due(self, epoch: int) -> bool:
        return self.histograms > 0 and epoch % self.histograms == 0

    def _show_histograms(self, step: int) -> None:
        for name, parameter in self.net.named_parameters():
            weight = full_tensor(parameter.detach())  # on every rank: it may be sharded
            if self.board is not None:
                self.board.writer.add_histogram(f"weights/{name}", weight, step)
                if name in self.gradients:
                    self.board.writer.add_histogram(f"weights/{name}/gradient", self.gradients[name], step)
        self.gradients = {}

    def _show_pictures(self, counts: Tensor | None, last: bool, step: int) -> None:
        """Show pictures of the first and the last validation, and of others as time allows."""
        began = time.perf_counter()
        if self.board is None or (began < self.next_pictures and not last):
            return
        from lockstep.monitor.pictures import pictures_of  # with PIL

        worst = None if self.samples is None else self.samples.worst
        net = None if self.plan.strategy.sharded else self.net
        for name, picture in pictures_of(counts, worst, net, self.shape, self.plan.data.labels).items():
            self.board.writer.add_image(name, picture, step, dataformats="HWC")
        now = time.perf_counter()
        self.next_pictures = now + (now - began) / SHARE
