"""Pictures of a validation for TensorBoard: confusion matrix, most confident errors, first filters."""

import time
import warnings
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import torch
from lightning.pytorch import Callback, LightningModule
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import interpolate

from lockstep.base.config_error import truncate
from lockstep.base.structures import predictions_of, tensors_in
from lockstep.runs.loggers.writers import TensorBoardWriter

if TYPE_CHECKING:
    from lockstep.engine.callbacks import ConfusionMatrix

SHARE = 0.005
"""The share of a run's time for drawing pictures, and as much for writing them: after t seconds none for t / SHARE."""
COLOURS = (1, 3)  # channels of a picture
NUMBERED = 20  # classes up to which each count and each name is written
COLUMNS, SHOWN_SAMPLES = 4, 16  # wrong predictions that are shown
MAX_FILTERS, MAX_LETTERS = 64, 16


class Pictures(Callback):
    """Shows a validation of a module whose step returns what `ConfusionMatrix` counts; first filters of any module.

    The first and the last validation have pictures, and others as time allows. On rank 0; errors are of its share.

    worst: inputs, true class, predicted class and confidence of wrong predictions, the most confident first; right
        ones, of confidence -1, come behind them.
    waiting: the latest validation if it was not drawn: its step and its worst predictions.
    """

    def __init__(
        self, board: TensorBoardWriter, confusion: "ConfusionMatrix", steps: Callable[[], int], filters: bool = True
    ) -> None:
        """Show pictures on a board.

        Args:
            confusion: a callback that is called before this one.
            steps: returns the optimizer steps until now.
            filters: whether to show the filters of the first layer, which may be sharded.
        """
        self.board, self.confusion, self.steps, self.filters = board, confusion, steps, filters
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
                self._draw(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: LightningModule) -> None:
        self._draw(trainer, pl_module)

    def _draw(self, trainer: Any, module: LightningModule) -> None:
        if self.waiting is None:
            return
        began, (step, worst), counts = time.perf_counter(), self.waiting, self.confusion.counts
        self.waiting = None
        data: Any = trainer.datamodule
        classes = int(getattr(data, "num_classes", None) or 0) if counts is None else len(counts)
        labels = [truncate(name, MAX_LETTERS) for name in self.confusion.class_names(trainer, classes)]
        with mpl.rc_context({"text.parse_math": False}), warnings.catch_warnings(action="ignore"):  # of missing letters
            if counts is not None:
                self.board.writer.add_figure("val/confusion", confusion_figure(counts, labels), step)
            if worst is not None and worst[-1][0] >= 0:
                self.board.writer.add_figure("val/worst", worst_figure(worst, labels), step)
        filters = first_filters(module, getattr(data, "sample_shape", None) or ()) if self.filters else None
        if filters is not None:
            self.board.writer.add_images("weights/first layer", filters, step)
        now = time.perf_counter()
        self.next_pictures = now + (now - began) / SHARE


def scaled(images: Tensor) -> Tensor:
    """Return images (n, channels, h, w), the values of each from 0 to 1."""
    images = images.detach().float().cpu()
    low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
    return (images - low) / (high - low).clamp(min=1e-12)


def first_filters(net: nn.Module, shape: Sequence[int]) -> Tensor | None:
    """Return the filters (n, channels, h, w) of the first layer, or None if they are no pictures."""
    first = next((module for module in net.modules() if isinstance(getattr(module, "weight", None), Tensor)), None)
    if isinstance(first, nn.Conv2d) and first.weight.shape[1] in COLOURS and max(first.kernel_size) > 1:
        weights = first.weight
    elif isinstance(first, nn.Linear) and len(shape) == 3 and shape[0] in COLOURS and first.in_features == prod(shape):
        weights = first.weight.view(-1, *shape)
    else:
        return None
    return interpolate(scaled(weights[:MAX_FILTERS]), scale_factor=max(1, 28 // weights.shape[2]))


def confusion_figure(counts: Tensor, labels: Sequence[str]) -> Figure:
    """Draw counts (true, predicted); a cell's colour is the share of its row."""
    figure = Figure(figsize=(6, 6))
    axes = figure.subplots(gridspec_kw={"left": 0.25, "bottom": 0.25, "right": 0.98, "top": 0.98})
    shares = (counts.double() / counts.sum(1, keepdim=True).clamp(min=1)).numpy()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set(xlabel="predicted", ylabel="true")
    if len(labels) <= NUMBERED:
        axes.set_xticks(range(len(labels)), labels, rotation=90)
        axes.set_yticks(range(len(labels)), labels)
        for row, column in counts.nonzero().tolist():
            colour = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(int(counts[row, column])), ha="center", va="center", color=colour)
    return figure


def worst_figure(worst: Sequence[Tensor], labels: Sequence[str]) -> Figure:
    """Draw wrong predictions: inputs, targets, predicted classes and confidence, which is -1 for right ones."""
    figure, names = Figure(figsize=(8, 8)), dict(enumerate(labels))  # a net may predict numbers without a name
    axes = figure.add_axes((0.02, 0, 0.98, 1))
    images = scaled(worst[0]).expand(-1, 3, -1, -1).permute(0, 2, 3, 1).numpy()
    for place, (true, other, confidence) in enumerate(zip(*(column.tolist() for column in worst[1:]), strict=True)):
        left, top = place % COLUMNS, place // COLUMNS * 1.2
        if confidence >= 0:
            axes.imshow(images[place], extent=(left, left + 0.95, top + 0.95, top))
            caption = f"{names.get(true, true)} as\n{names.get(other, other)}, {confidence:.0%}"
            axes.text(left, top, caption, fontsize=8, verticalalignment="bottom")
    axes.set(xlim=(0, COLUMNS), ylim=(1.2 * COLUMNS, -0.25))
    axes.axis("off")
    return figure
