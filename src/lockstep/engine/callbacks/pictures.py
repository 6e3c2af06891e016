"""Pictures of a validation for TensorBoard: confusion matrix, most confident errors."""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import torch
from lightning.pytorch import Callback, LightningModule
from matplotlib.figure import Figure
from torch import Tensor
from torchmetrics.utilities.plot import plot_confusion_matrix

from lockstep.base.config_error import truncate
from lockstep.base.structures import predictions_of, tensors_in
from lockstep.runs.loggers import TensorBoardWriter

if TYPE_CHECKING:
    from lockstep.engine.callbacks import ConfusionMatrix

SHARE = 0.005
"""The share of a run's time for drawing pictures, and as much for writing them: after t seconds none for t / SHARE."""
COLOURS = (1, 3)  # channels of a picture
NUMBERED = 20  # classes up to which each count and each name is written
COLUMNS, SHOWN_SAMPLES = 4, 16  # wrong predictions that are shown
MAX_LETTERS = 16


class Pictures(Callback):
    """Shows what `ConfusionMatrix` counts, and the most confident errors of rank 0's share.

    The first and the last validation have pictures, and others as time allows.

    worst: inputs, true class, predicted class and confidence of wrong predictions, the most confident first; right
        ones, of confidence -1, come behind them.
    waiting: the latest validation if it was not drawn: its step and its worst predictions.
    """

    def __init__(self, board: TensorBoardWriter, confusion: "ConfusionMatrix", steps: Callable[[], int]) -> None:
        """Show pictures on a board. `confusion` is called before; `steps` returns the optimizer steps until now."""
        self.board, self.confusion, self.steps = board, confusion, steps
        self.worst: tuple[Tensor, ...] | None = None
        self.next_pictures = 0.0
        self.waiting: tuple[int, tuple[Tensor, ...] | None] | None = None

    def on_validation_start(self, trainer: Any, pl_module: LightningModule) -> None:
        self.worst = None

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Collect the most confident errors, without waiting for a GPU."""
        if dataloader_idx or trainer.sanity_checking or not self.confusion.has_samples():
            return
        predictions, images = predictions_of(outputs), next(iter(tensors_in(batch)), None)
        is_picture = images is not None and images.is_floating_point() and images.dim() == 4
        if predictions is None or images is None or not is_picture:
            return
        _, targets, scores = predictions
        if images.shape[1] in COLOURS and scores is not None and scores.dim() == 2 and targets.dim() == 1:
            self.add(images, scores[: len(images)], targets[: len(images)])  # virtual ranks: images are rank 0's

    def add(self, inputs: Tensor, scores: Tensor, targets: Tensor) -> None:
        """Add a batch of inputs to the worst predictions, by logits (batch, classes) and classes (batch,)."""
        confidence, predicted = scores.detach().float().softmax(1).max(1)
        confidence = confidence.where((predicted != targets) & (targets >= 0), -1.0)
        columns: tuple[Tensor, ...] = inputs, targets, predicted, confidence
        if self.worst is not None:
            columns = tuple(map(torch.cat, zip(self.worst, columns, strict=True)))
        order = columns[-1].topk(min(SHOWN_SAMPLES, len(columns[-1]))).indices
        self.worst = tuple(column[order] for column in columns)

    def on_validation_epoch_end(self, trainer: Any, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking:
            self.waiting = self.steps(), self.worst
            if time.perf_counter() >= self.next_pictures:
                self.on_train_end(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: LightningModule) -> None:
        """Draw the latest validation, if it was not drawn."""
        counts = self.confusion.counts
        if self.waiting is None or counts is None:
            return
        began, (step, worst) = time.perf_counter(), self.waiting
        self.waiting = None
        labels = [truncate(name, MAX_LETTERS) for name in self.confusion.class_names(trainer, len(counts))]
        with mpl.rc_context({"text.parse_math": False}), warnings.catch_warnings(action="ignore"):  # of missing letters
            self.board.experiment.add_figure("val/confusion", confusion_figure(counts, labels), step)
            if worst is not None and worst[-1][0] >= 0:
                self.board.experiment.add_figure("val/worst", worst_figure(worst, labels), step)
        now = time.perf_counter()
        self.next_pictures = now + (now - began) / SHARE


def scaled(images: Tensor) -> Tensor:
    """Return images (n, channels, h, w), the values of each from 0 to 1."""
    images = images.detach().float().cpu()
    low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
    return (images - low) / (high - low).clamp(min=1e-12)


def confusion_figure(counts: Tensor, labels: Sequence[str]) -> Figure:
    """Draw counts (true, predicted)."""
    few, size = len(labels) <= NUMBERED, 3 + 0.6 * min(len(labels), NUMBERED)
    figure = Figure(figsize=(size, size), layout="constrained")
    axes = figure.subplots()
    plot_confusion_matrix(counts, axes, add_text=few, labels=[*labels], cmap="Blues")
    if not few:
        axes.set(xticks=[], yticks=[])
    return figure


def worst_figure(worst: Sequence[Tensor], labels: Sequence[str]) -> Figure:
    """Draw wrong predictions: inputs, targets, predicted classes and confidence, which is -1 for right ones."""
    figure, names = Figure(figsize=(8, 9), layout="constrained"), dict(enumerate(labels))  # some may have no name
    images = scaled(worst[0]).expand(-1, 3, -1, -1).permute(0, 2, 3, 1).numpy()
    for place, (true, other, confidence) in enumerate(zip(*(column.tolist() for column in worst[1:]), strict=True)):
        if confidence >= 0:
            axes = figure.add_subplot(SHOWN_SAMPLES // COLUMNS, COLUMNS, place + 1)
            axes.imshow(images[place])
            axes.set_title(f"{names.get(true, true)} as\n{names.get(other, other)}, {confidence:.0%}", fontsize=8)
            axes.axis("off")
    return figure
