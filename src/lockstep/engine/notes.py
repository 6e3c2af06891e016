"""What rank 0 notes for report.html beside the record, in report.json; and the page after epochs, as time allows."""

import random
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback
from torch import Tensor

from lockstep.base.files import read_json, save_json
from lockstep.base.structures import predictions_of
from lockstep.engine.callbacks import ConfusionMatrix
from lockstep.engine.callbacks.samples import Columns, classified, confidence_of_errors, keep_highest, scaled
from lockstep.plan.plan import Plan
from lockstep.runs.machine_report import versions_and_machine
from lockstep.runs.run_files import NOTES

SHARE = 0.01
"""The share of a run's time for writing the page before the end: after t seconds of writing none for t / SHARE."""
EXPECTED = 0.2  # seconds of the first page
PICTURES, WIDEST = 12, 64  # of each kind, and the pixels of a side
LARGEST = 1000  # classes of which samples are counted


class RunNotes:
    """The notes of a run. Only rank 0 writes them."""

    def __init__(self, plan: Plan, rank: int) -> None:
        self.plan, self.path = plan, Path(plan.run_dir) / NOTES
        self.writes = rank == 0
        self.values: dict[str, Any] = read_json(self.path) if plan.resume and self.writes else {}
        self.total = 0.0, 0.0
        self.next_page = time.perf_counter() + EXPECTED / SHARE

    def end_epoch(self, epoch: int, training: float, ranks: Sequence[Mapping[str, float]]) -> None:
        """Note the seconds of an epoch and of all ranks by phase until now; write the page, if it is due."""
        if not self.writes:
            return
        others = sum(ranks[0].values()) - training if ranks else 0.0
        seconds = [training - self.total[0], others - self.total[1]]
        self.total = training, others
        self.values["ranks"] = [*ranks]
        earlier = [each for each in self.values.get("epochs", []) if each[0] < epoch]  # a resumed run repeats some
        self.values["epochs"] = [*earlier, [epoch, *seconds]]
        began = time.perf_counter()
        if began >= self.next_page:
            from lockstep.runs.report import report

            self.save()
            report(self.path.parent)
            now = time.perf_counter()
            self.next_page = now + (now - began) / SHARE

    def data(self, loaders: Mapping[str, Sequence[Any]], owner: Any) -> None:
        """Note the samples of each split, and of each class as far as a Dataset has its targets in memory."""
        classes, trainer = getattr(owner, "num_classes", None) or 0, self.plan.trainer
        used: dict[str, Any] = {
            stage: getattr(each[0], "dataset", None) for stage, each in loaders.items() if len(each) == 1
        }
        sized = {stage: data for stage, data in used.items() if hasattr(data, "__len__")}
        unlimited = [stage for stage in sized if getattr(trainer, f"limit_{stage}_batches") == 1.0]
        self.values["samples"] = {stage: len(sized[stage]) for stage in unlimited}
        names = [*map(str, getattr(owner, "class_names", None) or range(classes))]
        if 0 < classes == len(names) <= LARGEST:
            counts = {stage: counted for stage, data in sized.items() if (counted := class_counts(data, classes))}
            self.values["classes"] = {"names": names, "counts": counts}

    def close(self) -> None:
        """Note where the run computed, and save all."""
        if self.writes:
            self.values["environment"] = versions_and_machine(gpu=self.plan.accelerator == "gpu")
            self.values["commit"] = self.plan.command.commit
            self.save()

    def save(self) -> None:
        with suppress(OSError):  # a full disk is told by what the run needs
            save_json(self.path, self.values)


def class_counts(dataset: Any, classes: int) -> list[int] | None:
    """Return the samples of each class, or None if the targets are not in memory or no classes."""
    with suppress(Exception):  # of a user's class
        rows, dataset = (dataset.indices, dataset.dataset) if hasattr(dataset, "indices") else (slice(None), dataset)
        tensors = getattr(dataset, "tensors", None) or [None]
        targets = torch.as_tensor(getattr(dataset, "targets", tensors[-1]))[rows]
        if targets.dim() == 1 and not targets.is_floating_point():
            counts: list[int] = torch.bincount(targets.long(), minlength=classes).tolist()
            return counts if len(counts) == classes else None
    return None


class SamplePictures(Callback):
    """Notes pictures of rank 0's share of the test: the most confident errors, and samples that are drawn."""

    def __init__(self, notes: RunNotes, confusion: ConfusionMatrix) -> None:
        self.notes, self.confusion, self.drawn = notes, confusion, random.Random(0)  # not torch's, which the run uses
        self.kinds: dict[str, Columns] = {}

    def on_test_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        predictions = predictions_of(outputs)
        if dataloader_idx or predictions is None or not self.confusion.has_samples():
            return
        columns = classified(batch, *predictions[1:])
        if columns is not None:
            chosen = torch.tensor([self.drawn.random() for _ in columns[0]], device=columns[-1].device)
            for kind, order in (("wrong", confidence_of_errors(columns)), ("random", chosen)):
                self.kinds[kind] = keep_highest(self.kinds.get(kind, ()), (*columns, order), PICTURES)

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        names = dict(enumerate(getattr(trainer.datamodule, "class_names", None) or ()))
        self.notes.values["pictures"] = [
            {"kind": kind, "src": picture(image)}
            | {"true": str(names.get(true, true)), "predicted": str(names.get(other, other)), "confidence": confidence}
            for kind, columns in self.kinds.items()
            for image, true, other, confidence, order in zip(columns[0], *map(Tensor.tolist, columns[1:]), strict=True)
            if order >= 0 and confidence >= 0  # and no NaN
        ]


def picture(image: Tensor) -> str:
    """Return an image (channels, h, w), its values from the smallest to the largest, as a small PNG in a data URI."""
    from PIL import Image

    pixels = (scaled(image) * 255).byte().cpu().permute(1, 2, 0).numpy()
    drawn = Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0])
    drawn.thumbnail((WIDEST, WIDEST))
    file = BytesIO()
    drawn.save(file, "PNG")
    return "data:image/png;base64," + b64encode(file.getvalue()).decode()
