"""Curves, texts and hyper-parameters for TensorBoard, which names a run by its folder below tensorboard/."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.config_error import truncate
from lockstep.loggers.run_label import run_label
from lockstep.plan import Plan
from lockstep.private_api.tensorboard import add_points, hparams_session

HyperParameter = str | int | float

FLUSH_SECONDS = 1.0  # points are handed to SummaryWriter together, a second's worth at a time
FOLDER = "tensorboard"

GROUPED = {"lr": "train/lr", "samples_per_second": "work/samples_per_second", "epoch": "work/epoch"}
"""The names in TensorBoard of values without a group. It sorts groups and opens the first two."""


def folder_of(plan: Plan) -> Path:
    """Return the folder of a plan's events; a resumed run continues in its folder."""
    folder = Path(plan.run_dir) / FOLDER
    existing = [path.parent for path in folder.glob("*/events.out.tfevents.*")] if plan.resume else []
    return max(existing, key=lambda path: path.stat().st_mtime, default=folder / run_label(plan))


def plain_hparam(value: Any) -> HyperParameter:
    """Return a number or a text; null is a text too, since TensorBoard would show no difference from it."""
    return value if isinstance(value, str | int | float) else truncate(json.dumps(value, default=str), 100)


class TensorBoardWriter:
    """Writes events below a folder, by the methods of Lightning's Logger; `writer` is torch's SummaryWriter.

    Hyper-parameters are written at the first flush: a module has added its own by then. TensorBoard itself lists those
    that differ among runs first, with the last point of each curve.
    """

    def __init__(self, folder: Path, hparams: Mapping[str, HyperParameter], resumed_at: int | None = None) -> None:
        """`resumed_at`: the step after which points of an earlier file are hidden."""
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(str(folder), purge_step=None if resumed_at is None else resumed_at + 1)
        self.flushed = time.monotonic()
        self.points: list[tuple[Mapping[str, float], int, float]] = []
        self.hparams, self.has_session, self.epoch_at = dict(hparams), False, -1
        self.trial = f"{folder.name}  {folder.parent}"  # what a table cuts is the path

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Add points. The epoch, which comes with each call, has one point a step."""
        repeated = {"epoch"} if self.epoch_at == step else set()
        self.epoch_at = step if "epoch" in metrics else self.epoch_at
        values = {GROUPED.get(name, name): value for name, value in metrics.items() if name not in repeated}
        self.points.append((values, step, time.time()))
        if time.monotonic() - self.flushed > FLUSH_SECONDS:
            self.save()

    def log_hyperparams(self, params: Mapping[str, HyperParameter]) -> None:
        self.hparams |= params

    def save(self) -> None:
        """Hand the points to SummaryWriter together: each event wakes its thread, which takes turns with training."""
        if self.hparams and not self.has_session:
            self.has_session = True
            self.writer.file_writer.add_summary(hparams_session(self.hparams, self.trial)[0])
        for values, step, at in self.points:
            add_points(self.writer, values, step, at)
        self.points, self.flushed = [], time.monotonic()
        self.writer.flush()

    def finalize(self, status: str) -> None:
        self.save()
        if self.has_session and status == "success":
            self.writer.file_writer.add_summary(hparams_session(self.hparams, self.trial)[1])
        self.writer.close()
