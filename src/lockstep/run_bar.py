"""A bar over a whole run, in a terminal, by either engine: which epoch, the time left, what was measured last."""

from collections.abc import Mapping
from typing import Never

from tqdm import tqdm

REFRESH_SECONDS = 0.2


class RunBar:
    """It takes a line of the terminal, whatever its width, and leaves none behind."""

    def __init__(self, epochs: int, epoch_batches: float) -> None:
        """`epoch_batches`: 0 or infinite where nobody knows; then there is no time left to be said."""
        self.epochs, self.batches = epochs, int(epoch_batches) if 0 < epoch_batches < float("inf") else 0
        self.bar: tqdm[Never] | None = None

    def begin(self, epoch: int, done: int) -> None:
        """An epoch begins, counted from 1, or goes on where so many of its batches are done."""
        if self.bar is None:
            total = self.epochs * self.batches or None
            before = (epoch - 1) * self.batches + done  # of an earlier run: they say nothing of this one's speed
            self.bar = tqdm(
                total=total, initial=before, mininterval=REFRESH_SECONDS, leave=False, dynamic_ncols=True, unit="batch"
            )
        self.bar.set_description_str(f"epoch {epoch}/{self.epochs}", refresh=False)

    def batch(self) -> None:
        if self.bar is not None:
            self.bar.update()

    def show(self, metrics: Mapping[str, float]) -> None:
        """What was measured last, beside the bar."""
        if self.bar is not None:
            self.bar.set_postfix_str(" ".join(f"{name} {value:.4g}" for name, value in sorted(metrics.items())))

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
