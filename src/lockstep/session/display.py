"""What a run shows while it trains, on rank 0: in a terminal a bar over the whole run, else a line for each epoch."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Never

from lockstep.checkpoint.content import Progress
from lockstep.plan import Plan
from lockstep.progress import epoch_line, shows_bar

if TYPE_CHECKING:
    from tqdm import tqdm


class Display:
    """`has_bar`: False if a callback shows one of its own. The bar is removed at the end."""

    bar: "tqdm[Never] | None" = None

    def __init__(self, plan: Plan, rank: int) -> None:
        self.epochs, self.batches = plan.max_epochs, plan.steps.epoch_batches
        self.has_bar = rank == 0 and shows_bar(plan.trainer.enable_progress_bar)
        self.has_lines = rank == 0 and not self.has_bar

    def begin_epoch(self, position: Progress) -> None:
        """Start the clock of an epoch; batches of an earlier run do not count for the bar's speed."""
        self.began = time.perf_counter()
        if not self.has_bar:
            return
        if self.bar is None:
            from tqdm import tqdm  # for a terminal alone

            total, done = self.epochs * self.batches or None, position.epochs * self.batches + position.batch
            self.bar = tqdm(total=total, initial=done, mininterval=0.2, leave=False, dynamic_ncols=True, unit="batch")
        self.bar.set_description_str(f"epoch {position.epochs + 1}/{self.epochs}", refresh=False)

    def end_batch(self, metrics: Mapping[str, float]) -> None:
        """Show that a batch has ended, and the values of the module's `prog_bar` whenever tqdm draws the bar."""
        if self.bar is not None and self.bar.update():
            self.show(metrics)

    def show(self, metrics: Mapping[str, float]) -> None:
        """Show the latest metrics in the bar."""
        if self.bar is not None:
            named = (f"{name} {float(value):.4g}" for name, value in sorted(metrics.items()))
            self.bar.set_postfix_str(" ".join(named))

    def end_epoch(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Print the line of an epoch, counted from 1."""
        if self.has_lines:
            print(epoch_line(epoch, self.epochs, metrics, time.perf_counter() - self.began), flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
