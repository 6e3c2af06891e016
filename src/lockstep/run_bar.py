"""The progress bar over a whole run, in a terminal, for both engines."""

from collections.abc import Mapping
from typing import Never

from tqdm import tqdm

REFRESH_SECONDS = 0.2


class RunBar:
    """One line of the terminal: the epoch, the time left, the latest metrics. It is removed at the end.

    Args:
        epochs: of the run.
        epoch_batches: batches of an epoch; 0 or infinite if unknown, and then the bar shows no time left.
    """

    def __init__(self, epochs: int, epoch_batches: float) -> None:
        self.epochs, self.batches = epochs, int(epoch_batches) if 0 < epoch_batches < float("inf") else 0
        self.bar: tqdm[Never] | None = None

    def begin(self, epoch: int, done: int) -> None:
        """Begin an epoch, counted from 1, of which so many batches are done."""
        if self.bar is None:
            self.bar = tqdm(
                total=self.epochs * self.batches or None,
                initial=(epoch - 1) * self.batches + done,  # batches of an earlier run do not count for the speed
                mininterval=REFRESH_SECONDS,
                leave=False,
                dynamic_ncols=True,
                unit="batch",
            )
        self.bar.set_description_str(f"epoch {epoch}/{self.epochs}", refresh=False)

    def batch(self) -> None:
        if self.bar is not None:
            self.bar.update()

    def show(self, metrics: Mapping[str, float]) -> None:
        if self.bar is not None:
            self.bar.set_postfix_str(" ".join(f"{name} {value:.4g}" for name, value in sorted(metrics.items())))

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
