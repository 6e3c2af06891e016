"""What a run shows while it trains, by either engine: a line for each epoch, points on curves, notices."""

import sys
import time
from collections.abc import Mapping
from typing import Any

FLUSH_SECONDS = 1.0


def epoch_line(epoch: int, epochs: int, metrics: Mapping[str, float], seconds: float) -> str:
    """`epoch 3/20  train/loss 0.1234  val/acc 0.9722  val/loss 0.0987  0.31 s`."""
    named = "  ".join(f"{name} {value:.4f}" for name, value in sorted(metrics.items()))
    return f"epoch {epoch}/{epochs}  {named}  {seconds:.2f} s"


def notice(sentence: str) -> None:
    """Print a line on stderr about something that does not end the run."""
    print(sentence, file=sys.stderr, flush=True)


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


def csv_version(resume: bool, step: int) -> str:
    """The folder, below csv/, of a table of curves: one for each resume in the run's folder."""
    return f"from_step_{step + 1}" if resume and step else ""
