"""Pictures of a validation for TensorBoard: confusion matrix, worst samples, first filters; precision over recall."""

import time
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule
from torch import Tensor

from lockstep.callbacks.confusion_matrix import ConfusionMatrix, class_names
from lockstep.loggers.writers import TensorBoardWriter
from lockstep.monitor.samples import PredictionSamples
from lockstep.steps.step_outputs import predictions_of
from lockstep.structures import tensors_in

SHARE = 0.005
"""The share of a run's time for drawing pictures, and as much for writing them: after t seconds none for t / SHARE."""
COLOURS = (1, 3)  # channels of a picture


class Pictures(Callback):
    """Shows a validation of a module whose step returns what `ConfusionMatrix` counts; first filters of any module.

    The first and the last validation have pictures, and others as time allows. Each one has precision-recall curves.
    On rank 0; samples are those of its share.

    waiting: the latest validation if it was not drawn: its step and its samples.
    """

    def __init__(
        self,
        board: TensorBoardWriter,
        confusion: ConfusionMatrix,
        steps: Callable[[], int],
        images: bool = True,
        pr_curves: bool = False,
        filters: bool = True,
    ) -> None:
        """Show pictures on a board.

        Args:
            confusion: a callback that is called before this one.
            steps: returns the optimizer steps until now.
            filters: whether to show the filters of the first layer, which may be sharded.
        """
        self.board, self.confusion, self.steps = board, confusion, steps
        self.images, self.pr_curves, self.filters = images, pr_curves, filters
        self.samples = PredictionSamples(pr_curves)
        self.next_pictures = 0.0
        self.waiting: tuple[int, PredictionSamples] | None = None

    def on_validation_start(self, trainer: Any, pl_module: LightningModule) -> None:
        self.samples = PredictionSamples(self.pr_curves)

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Collect the samples to show, without waiting for a GPU unless there are precision-recall curves."""
        if dataloader_idx or trainer.sanity_checking or not self.confusion.has_samples():
            return
        predictions = predictions_of(outputs)
        if predictions is not None and predictions.scores is not None and predictions.scores.dim() == 2:
            inputs = _images(batch)
            count = len(predictions.targets) if inputs is None else len(inputs)  # virtual ranks: inputs are rank 0's
            self.samples.add(inputs, predictions.scores[:count], predictions.targets[:count])

    def on_validation_epoch_end(self, trainer: Any, pl_module: LightningModule) -> None:
        if trainer.sanity_checking:
            return
        samples, step = self.samples, self.steps()
        if samples.scores:
            probabilities, targets = (torch.cat(column) for column in zip(*samples.scores, strict=True))
            labels = class_names(trainer, probabilities.shape[1])
            for index, (label, scores) in enumerate(zip(labels, probabilities.T, strict=True)):
                self.board.writer.add_pr_curve(f"val/class {label}", targets == index, scores, step)
            samples.scores = []
        if self.images:
            self.waiting = step, samples
            if time.perf_counter() >= self.next_pictures:
                self._draw(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: LightningModule) -> None:
        self._draw(trainer, pl_module)

    def _draw(self, trainer: Any, module: LightningModule) -> None:
        if self.waiting is None:
            return
        from lockstep.monitor.pictures import pictures_of  # with PIL

        began, (step, samples), counts = time.perf_counter(), self.waiting, self.confusion.counts
        self.waiting = None
        shape = tuple(getattr(trainer.datamodule, "sample_shape", None) or ())
        classes = len(counts) if counts is not None else samples.classes
        net, labels = module if self.filters else None, class_names(trainer, classes)
        for name, picture in pictures_of(counts, samples.worst, net, shape, labels).items():
            self.board.writer.add_image(name, picture, step, dataformats="HWC")
        now = time.perf_counter()
        self.next_pictures = now + (now - began) / SHARE


def _images(batch: Any) -> Tensor | None:
    """Return the first tensor of a batch if it has images (batch, 1 or 3, height, width) of floats."""
    first = next(iter(tensors_in(batch)), None)
    if first is None or not first.is_floating_point() or first.dim() != 4 or first.shape[1] not in COLOURS:
        return None
    return first
