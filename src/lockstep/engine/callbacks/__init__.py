"""Lightning callbacks of Lockstep."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import TQDMProgressBar
from torch import Tensor

from lockstep.base.config_error import config_error
from lockstep.base.messages import all_gather_json
from lockstep.base.structures import predictions_of
from lockstep.runs.run_files import save_confusion

if TYPE_CHECKING:
    from lockstep.engine.callbacks.pictures import Pictures


class ConfusionMatrix(Callback):
    """Counts how often each class (row) was predicted as each class (column), over all ranks; a test's as a file.

    The steps return {"logits" or "preds": …, "targets": …}; else nothing is counted. Of several loaders the first is.
    The number of classes is the data module's `num_classes`, or else the width of the logits.

    sums: of this rank in the current evaluation: int64, (classes, classes + 1), the last column for predictions that
        are no class.
    counts: of all ranks in the latest one, without that column if it is empty; None if nothing was counted.
    """

    counts: Tensor | None = None
    sums: Tensor | None

    def __init__(
        self, folder: str | Path, validation: bool, has_samples: Callable[[], bool], pictures: "Pictures | None" = None
    ) -> None:
        """Save the counts of a test in a folder, and show those of a validation in pictures.

        validation: whether to count in validations, on every rank; pictures: on rank 0 alone.
        has_samples: returns whether this rank has samples of the current batch.
        """
        self.folder, self.validation, self.has_samples = Path(folder), validation, has_samples
        self.pictures, self.sums = pictures, None

    def on_validation_start(self, trainer: Any, pl_module: LightningModule) -> None:
        self.counts = self.sums = None
        if self.pictures is not None:
            self.pictures.worst = ()

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        counts = (trainer.testing or self.validation) and dataloader_idx == 0 and self.has_samples()
        predictions = predictions_of(outputs) if counts else None
        if predictions is None:
            return
        predicted, targets, scores = predictions
        width = scores.shape[1] if scores is not None and scores.dim() == 2 else 0
        if classes := getattr(trainer.datamodule, "num_classes", None) or width:
            predicted, targets = predicted.flatten(), targets.flatten()
            predicted = predicted.where((predicted >= 0) & (predicted < classes), classes)
            cells = (targets * (classes + 1) + predicted)[(targets >= 0) & (targets < classes)]
            sums = cells.bincount(minlength=classes * (classes + 1)).view(classes, classes + 1)
            self.sums = sums if self.sums is None else self.sums + sums
        if self.pictures is not None and not trainer.testing:
            self.pictures.add(batch, *predictions[1:])

    def on_validation_epoch_end(self, trainer: Any, pl_module: LightningModule) -> None:
        if trainer.testing or self.validation:
            ranks = all_gather_json([] if self.sums is None else self.sums.tolist())
            sums = [torch.tensor(each) for each in ranks if each]
            if sums:
                total = torch.stack(sums).sum(0)
                self.counts = total if total[:, -1].any() else total[:, :-1]
        if self.pictures is not None and self.counts is not None and not trainer.testing:
            self.pictures.end_validation(self.counts, self.class_names(trainer, len(self.counts)))

    def on_train_end(self, trainer: Any, pl_module: LightningModule) -> None:
        if self.pictures is not None:
            self.pictures.draw()

    def on_test_epoch_end(self, trainer: Any, pl_module: LightningModule) -> None:
        self.on_validation_epoch_end(trainer, pl_module)
        if self.counts is not None and trainer.is_global_zero:
            save_confusion(self.folder, self.counts.tolist(), self.class_names(trainer, len(self.counts)))

    on_test_start, on_test_batch_end = on_validation_start, on_validation_batch_end

    @staticmethod
    def class_names(trainer: Any, classes: int) -> list[str]:
        """Return the class names of the data module, or else numbers."""
        names = getattr(trainer.datamodule, "class_names", None) or ()
        return [*map(str, names if len(names) == classes else range(classes))]


class Bar(TQDMProgressBar):
    """Lightning's bar, narrow enough for the time left and the loss of the last batch in 80 columns."""

    BAR_FORMAT = "{desc}: {percentage:3.0f}%|{bar:8}| {n_fmt}/{total_fmt} [{remaining}, {rate_noinv_fmt}{postfix}]"
    loss: Tensor | None = None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *arguments: Any) -> None:
        self.loss = outputs.get("loss") if isinstance(outputs, Mapping) else None
        super().on_train_batch_end(trainer, pl_module, outputs, *arguments)

    def get_metrics(self, trainer: Any, pl_module: LightningModule) -> dict[str, Any]:
        """Return the loss, then what the module logs with `prog_bar`."""
        shown = {} if self.loss is None else {"loss": float(self.loss) * trainer.accumulate_grad_batches}
        return {**shown, **trainer.progress_bar_metrics}


class FittedLine(Callback):
    """Logs slope f(1) - f(0), intercept f(0) and f(x) for each x to predict as predict/x, at the end of a test."""

    def __init__(self, predict: Sequence[float] = ()) -> None:
        self.predict = [float(x) for x in predict]

    def on_test_epoch_end(self, trainer: Any, pl_module: LightningModule) -> None:
        weight = next(pl_module.parameters())
        x = torch.tensor([0.0, 1.0, *self.predict], dtype=weight.dtype, device=pl_module.device)
        sample_shape = getattr(trainer.datamodule, "sample_shape", None) or (1,)
        outputs = pl_module(x[:, None]) if tuple(sample_shape) == (1,) else None
        if outputs is None or outputs.numel() != len(x):
            reason = "FittedLine needs a net from one number to one number"
            raise config_error("callbacks", "fitted_line", reason, "callbacks=none")
        at_zero, at_one, *rest = outputs.flatten().tolist()
        line = {"slope": at_one - at_zero, "intercept": at_zero}
        line |= {f"predict/{value:g}": y for value, y in zip(self.predict, rest, strict=True)}
        for name, value in line.items():
            pl_module.log(name, value, reduce_fx="max")  # the same on every rank: a mean would round
