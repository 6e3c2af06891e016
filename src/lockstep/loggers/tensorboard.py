"""Curves and hyper-parameters for TensorBoard, whose points are handed on together."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.loggers.logger import Logger, Value
from lockstep.plan import Plan

FLUSH_SECONDS = 1.0
FOLDER = "tensorboard"


class TensorBoard(Logger):
    """Points behind the step at which training begins are of training that was lost and is done anew."""

    def __init__(self, plan: Plan, steps: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder, purge = Path(plan.run_dir) / FOLDER, steps + 1 if plan.resume else None
        self.writer: Any = SummaryWriter(str(folder), purge_step=purge)
        self.points = Points(self.writer)

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        self.points.add(values, step)

    def flush(self) -> None:
        self.points.flush()

    def close(self, hparams: Mapping[str, Value], results: Mapping[str, float]) -> None:
        """Hyper-parameters together with the final metrics: TensorBoard shows nothing for either alone."""
        from torch.utils.tensorboard.summary import hparams as summaries

        self.points.hand_over()
        final = {f"final/{name}": value for name, value in results.items()}
        for summary in summaries({**hparams}, final):  # type: ignore[no-untyped-call]
            self.writer.file_writer.add_summary(summary)
        for tag, value in final.items():
            self.writer.add_scalar(tag, value, 0)
        self.writer.close()


class Points:
    """Points on TensorBoard's curves, handed to its SummaryWriter, and to the disk, a second's worth at a time.

    Each event wakes the writer's thread, which takes turns with training then: one by one, an event costs what several
    steps of a small net do.
    """

    def __init__(self, writer: Any) -> None:
        self.writer, self.flushed = writer, time.monotonic()
        self.waiting: list[tuple[Mapping[str, float], int, float]] = []

    def add(self, values: Mapping[str, float], step: int) -> None:
        """A point on each curve, at an optimizer step."""
        self.waiting.append((values, step, time.time()))
        if time.monotonic() - self.flushed > FLUSH_SECONDS:
            self.flush()

    def hand_over(self) -> None:
        from lockstep.private_api.torch import add_points

        for values, step, at in self.waiting:
            add_points(self.writer, values, step, at)
        self.waiting, self.flushed = [], time.monotonic()

    def flush(self) -> None:
        """Onto the disk."""
        self.hand_over()
        self.writer.flush()
