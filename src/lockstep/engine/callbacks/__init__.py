"""Lightning callbacks of Lockstep."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch import Callback, LightningModule
from torch import Tensor

from lockstep.base.config_error import config_error
from lockstep.base.structures import predictions_of
from lockstep.runs.run_files import save_confusion


class ConfusionMatrix(Callback):
    """Counts how often each class (row) was predicted as each class (column), over all ranks; a test's as a file.

    The steps return {"logits" or "preds": …, "targets": …}; else nothing is counted. Of several loaders only the first
    is. The number of classes is the data module's `num_classes`, or else the width of the logits; targets that are no
    class, as -100, do not count.

    counts: of the latest evaluation, over all ranks: int64, (classes, classes), or with another column for predictions
        of numbers that are no class; None if nothing was counted.
    """

    counts: Tensor | None = None

    def __init__(
        self, folder: str | Path, validation: bool = True, has_samples: Callable[[], bool] = lambda: True
    ) -> None:
        """Save the counts of a test in a folder.

        Args:
            validation: whether to count in validations, too.
            has_samples: whether the current batch is none of a rank without samples, which only takes part.
        """
        self.folder, self.validation, self.has_samples = Path(folder), validation, has_samples
        self.sums: Tensor | None = None

    def on_validation_start(self, trainer: Any, pl_module: LightningModule) -> None:
        self.counts = self.sums = None

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if trainer.testing or self.validation:
            self._count(trainer, outputs, dataloader_idx)

    def on_validation_epoch_end(self, trainer: Any, pl_module: LightningModule) -> None:
        if self.validation and not trainer.sanity_checking:
            self.counts = self._total(pl_module.device)

    def on_test_epoch_end(self, trainer: Any, pl_module: LightningModule) -> None:
        self.counts = self._total(pl_module.device)
        if self.counts is not None and trainer.is_global_zero:
            save_confusion(self.folder, self.counts.tolist(), self.class_names(trainer, len(self.counts)))

    on_test_start, on_test_batch_end = on_validation_start, on_validation_batch_end

    @staticmethod
    def class_names(trainer: Any, classes: int) -> list[str]:
        """Return the class names of the data module, or else numbers."""
        names = getattr(trainer.datamodule, "class_names", None) or ()
        return [*map(str, names if len(names) == classes else range(classes))]

    def _count(self, trainer: Any, outputs: Any, dataloader_idx: int) -> None:
        """Add a batch, without waiting for a GPU."""
        if dataloader_idx or trainer.sanity_checking or not self.has_samples():
            return
        if (predictions := predictions_of(outputs)) is None:
            return
        classes, (predicted, targets, scores) = getattr(trainer.datamodule, "num_classes", None), predictions
        if classes is None and scores is not None and scores.dim() == 2:
            classes = scores.shape[1]
        if not classes:
            return
        predicted, targets = predicted.flatten(), targets.flatten()
        predicted = predicted.where((predicted >= 0) & (predicted < classes), classes)
        is_class = (targets >= 0) & (targets < classes)
        last = classes * (classes + 1)  # for targets that are no class
        cells = torch.where(is_class, targets * (classes + 1) + predicted, last)
        if self.sums is None:
            self.sums = torch.zeros(last + 1, dtype=torch.int64, device=targets.device)
        self.sums.scatter_add_(0, cells, torch.ones_like(cells))

    def _total(self, device: torch.device) -> Tensor | None:
        """Return the counts of all ranks, of which some may have no batch. To be called by every rank."""
        sums, self.sums = self.sums, None
        if dist.is_initialized():
            size = torch.tensor(0 if sums is None else len(sums), device=device)
            dist.all_reduce(size, dist.ReduceOp.MAX)
            if size == 0:
                return None
            sums = torch.zeros(int(size), dtype=torch.int64, device=device) if sums is None else sums.to(device)
            dist.all_reduce(sums)
        if sums is None:
            return None
        classes = int((len(sums) - 1) ** 0.5)
        counts = sums[:-1].cpu().view(classes, classes + 1)
        return counts if counts[:, -1].any() else counts[:, :-1]


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
