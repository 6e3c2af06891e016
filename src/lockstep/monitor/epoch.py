"""What is shown of an epoch beside its numbers: pictures, precision over recall, histograms. By rank 0 alone."""

import time
from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor, nn

from lockstep.loggers import Loggers
from lockstep.loggers.tensorboard import TensorBoard
from lockstep.monitor.pictures import confusion_picture, filters_picture, samples_picture
from lockstep.plan import Plan
from lockstep.schemas.logger import tensorboard_of
from lockstep.sums.shown import Shown

SHARE = 0.005
"""Of a run's time, that pictures may take to draw, and as much to write: after t seconds of it none for t / SHARE."""

COLOURS = (1, 3)
"""Channels of what can be looked at."""
FILTERS = 64


class EpochMonitor:
    """Both engines call `end_steps`, `begin_validation`, if there is one, and `end_epoch`, in this order."""

    def __init__(self, plan: Plan, loggers: Loggers, net: nn.Module, shape: tuple[int, ...]) -> None:
        """`shape`: of a sample."""
        self.plan, self.net, self.shape = plan, net, shape
        self.board, self.options = loggers.board, tensorboard_of(plan)
        takes_part = self.board is not None or plan.strategy.sharded  # each rank has a shard of what rank 0 shows
        self.histograms = self.options.histograms if self.options is not None and takes_part else 0
        self.shown: Shown | None = None
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

    def begin_validation(self) -> Shown | None:
        """Return what is to collect the samples to show, if any."""
        self.shown, options = None, self.options
        classed = self.plan.objective.classes and self.plan.objective.ignored is None
        if self.board is not None and options is not None and classed and (options.images or options.pr_curves):
            self.shown = Shown(options.pr_curves)
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
        if counts is not None:
            board.log_image("val/confusion", confusion_picture(counts.cpu()), step)
        if self.shown is not None and self.shown.worst is not None:
            _show_worst(board, self.shown.worst, step)
        filters = None if self.plan.strategy.sharded else first_filters(self.net, self.shape)
        if filters is not None:
            board.log_image("weights/first layer", filters_picture(filters[:FILTERS]), step)
        now = time.perf_counter()
        self.rests_until = now + (now - began) / SHARE


def first_filters(net: nn.Module, shape: tuple[int, ...]) -> Tensor | None:
    """Weights (n, channels, h, w) of the first layer with any, where they can be looked at.

    Of a convolution as they are, of a linear layer over images in the images' shape.
    """
    first = next((own for own in net.modules() if isinstance(getattr(own, "weight", None), Tensor)), None)
    if isinstance(first, nn.Conv2d) and first.weight.shape[1] in COLOURS and max(first.kernel_size) > 1:
        return first.weight
    if isinstance(first, nn.Linear) and len(shape) == 3 and shape[0] in COLOURS and first.in_features == prod(shape):
        return first.weight.view(-1, *shape)
    return None


def _show_worst(board: TensorBoard, worst: tuple[Tensor, Tensor, Tensor, Tensor], step: int) -> None:
    inputs, targets, predicted, confidence = (own.cpu() for own in worst)
    wrong = int((confidence >= 0).sum())
    if wrong and inputs.dim() == 4 and inputs.shape[1] in COLOURS:
        rows = zip(targets.tolist(), predicted.tolist(), confidence.tolist(), strict=True)
        captions = [f"{true} as {other}, {sure:.0%}" for true, other, sure in rows]
        board.log_image("val/worst", samples_picture(inputs[:wrong], captions[:wrong]), step)


def _show_pr_curves(board: TensorBoard, scores: list[tuple[Tensor, Tensor]], step: int) -> None:
    probabilities, targets = (torch.cat(column) for column in zip(*scores, strict=True))
    for label in range(probabilities.shape[1]):
        board.log_pr_curve(f"val/class {label}", targets == label, probabilities[:, label], step)
