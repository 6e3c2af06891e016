"""Pictures of a validation for TensorBoard: confusion matrix, most confident errors."""

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

COLOURS = (1, 3)  # channels of a picture
NUMBERED = 20  # classes up to which each count and each name is written
COLUMNS, SHOWN_SAMPLES = 4, 16  # wrong predictions that are shown
MAX_LETTERS = 16


class Pictures(Callback):
    """Shows what `ConfusionMatrix` counts, and the most confident errors of rank 0's share.

    Drawing takes longer than a short epoch: the validations 1, 2, 4, 8, … and the last have pictures.

    worst: inputs, true class, predicted class and confidence of wrong predictions, the most confident first; right
        ones, of confidence -1, come behind them.
    """

    def __init__(self, board: TensorBoardWriter, confusion: "ConfusionMatrix", steps: Callable[[], int]) -> None:
        """Show pictures on a board. `confusion` is called before; `steps` returns the optimizer steps until now."""
        self.board, self.confusion, self.steps = board, confusion, steps
        self.worst: tuple[Tensor, ...] = ()
        self.validations = self.drawn = self.step = 0

    def on_validation_start(self, trainer: Any, pl_module: LightningModule) -> None:
        self.worst = ()

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Collect the most confident errors, without waiting for a GPU."""
        if dataloader_idx or not self.confusion.has_samples():
            return
        predictions, images = predictions_of(outputs), next(iter(tensors_in(batch)), None)
        if predictions is None or images is None or images.dim() != 4 or not images.is_floating_point():
            return
        _, targets, scores = predictions
        if images.shape[1] in COLOURS and scores is not None and scores.dim() == 2 and targets.dim() == 1:
            self.add(images, scores[: len(images)], targets[: len(images)])  # virtual ranks: images are rank 0's

    def add(self, inputs: Tensor, scores: Tensor, targets: Tensor) -> None:
        """Add a batch of inputs to the worst predictions, by logits (batch, classes) and classes (batch,)."""
        confidence, predicted = scores.detach().float().softmax(1).max(1)
        confidence = confidence.where((predicted != targets) & (targets >= 0), -1.0)
        columns: tuple[Tensor, ...] = inputs, targets, predicted, confidence
        if self.worst:
            columns = tuple(map(torch.cat, zip(self.worst, columns, strict=True)))
        order = columns[-1].topk(min(SHOWN_SAMPLES, len(columns[-1]))).indices
        self.worst = tuple(column[order] for column in columns)

    def on_validation_epoch_end(self, trainer: Any, pl_module: LightningModule) -> None:
        self.validations, self.step = self.validations + 1, self.steps()
        if self.validations.bit_count() == 1:
            self.on_train_end(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: LightningModule) -> None:
        """Draw the latest validation, if it was not drawn."""
        counts = self.confusion.counts
        if self.drawn == self.validations or counts is None:
            return
        self.drawn = self.validations
        labels = [truncate(name, MAX_LETTERS) for name in self.confusion.class_names(trainer, len(counts))]
        with mpl.rc_context({"text.parse_math": False}), warnings.catch_warnings(action="ignore"):  # of missing letters
            self.board.writer.add_figure("val/confusion", confusion_figure(counts, labels), self.step)
            if self.worst and self.worst[-1][0] >= 0:
                self.board.writer.add_figure("val/worst", worst_figure(self.worst, labels), self.step)


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
    images, *columns = (column.detach().cpu() for column in worst)
    for place, (image, true, other, confidence) in enumerate(zip(images.float(), *columns, strict=True), start=1):
        if confidence >= 0:
            axes = figure.add_subplot(SHOWN_SAMPLES // COLUMNS, COLUMNS, place)
            scaled = (image - image.min()) / (image.max() - image.min()).clamp(min=1e-12)
            axes.imshow(scaled.expand(3, -1, -1).permute(1, 2, 0))
            target, predicted = (names.get(int(index), int(index)) for index in (true, other))
            axes.set_title(f"{target} as\n{predicted}, {confidence:.0%}", fontsize=8)
            axes.axis("off")
    return figure
