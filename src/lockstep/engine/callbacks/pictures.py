"""Pictures of a validation for TensorBoard: confusion matrix, most confident errors."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from torch import Tensor
from torchmetrics.utilities.plot import plot_confusion_matrix

from lockstep.base.config_error import shorten
from lockstep.engine.callbacks.samples import classified, confidence_of_errors, keep_highest, scaled
from lockstep.runs.loggers import TensorBoard

NUMBERED = 20  # classes up to which each count and each name is written
COLUMNS, SHOWN_SAMPLES = 4, 16  # wrong predictions that are shown
MAX_LETTERS = 16


class Pictures:
    """The confusion matrix of a validation, and the most confident errors of rank 0's share.

    Drawing takes longer than a short epoch: the validations 1, 2, 4, 8, … and the last have pictures.

    worst: inputs, true class, predicted class and confidence of wrong predictions, the most confident first; right
        ones, of confidence -1, come behind them.
    latest: the step, the counts and the class names of the latest validation, if it was not drawn.
    """

    latest: tuple[int, Tensor, Sequence[str]] | None = None

    def __init__(self, board: TensorBoard, steps: Callable[[], int]) -> None:
        """Show pictures on a board; `steps` returns the optimizer steps until now."""
        self.board, self.steps, self.validations = board, steps, 0
        self.worst: tuple[Tensor, ...] = ()

    def add(self, batch: Any, targets: Tensor, scores: Tensor | None) -> None:
        """Collect the most confident errors in a batch of images, by classes and scores, without waiting for a GPU."""
        columns = classified(batch, targets, scores)
        if columns is not None and columns[0].is_floating_point():
            self.worst = keep_highest(self.worst, (*columns[:-1], confidence_of_errors(columns)), SHOWN_SAMPLES)

    def end_validation(self, counts: Tensor, names: Sequence[str]) -> None:
        self.validations += 1
        self.latest = self.steps(), counts, names
        if self.validations.bit_count() == 1:
            self.draw()

    def draw(self) -> None:
        """Draw the latest validation, if it was not drawn."""
        if self.latest is None:
            return
        (step, counts, names), self.latest = self.latest, None
        labels = [shorten(name, MAX_LETTERS) for name in names]
        with mpl.rc_context({"text.parse_math": False}), warnings.catch_warnings(action="ignore"):  # of missing letters
            self.board.experiment.add_figure("val/confusion", confusion_figure(counts, labels), step)
            if self.worst and self.worst[-1][0] >= 0:
                self.board.experiment.add_figure("val/worst", worst_figure(self.worst, labels), step)


def confusion_figure(counts: Tensor, labels: Sequence[str]) -> Figure:
    """Draw counts (true, predicted)."""
    few, size = len(labels) <= NUMBERED, 3 + 0.3 * min(len(labels), NUMBERED)
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
    for place, (image, true, other, confidence) in enumerate(zip(images, *columns, strict=True), start=1):
        if confidence >= 0:
            axes = figure.add_subplot(SHOWN_SAMPLES // COLUMNS, COLUMNS, place)
            axes.imshow(scaled(image).expand(3, -1, -1).permute(1, 2, 0))
            target, predicted = (names.get(int(index), int(index)) for index in (true, other))
            axes.set_title(f"{target} as\n{predicted}, {confidence:.0%}", fontsize=8)
            axes.axis("off")
    return figure
