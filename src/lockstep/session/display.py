"""What a run shows while it trains, on rank 0: in a terminal a bar over the whole run, else a line for each epoch."""

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Never

from lockstep.checkpoint.content import Progress
from lockstep.plan import Plan

if TYPE_CHECKING:
    from tqdm import tqdm

BAR = "{desc}: {percentage:3.0f}%|{bar:8}| {n_fmt}/{total_fmt} [{remaining}, {rate_noinv_fmt}{postfix}]"
"""Of tqdm: narrow, so that 80 columns have room for a metric."""


class Display:
    """`has_bar`: False if a callback shows one of its own. The bar is removed at the end."""

    bar: "tqdm[Never] | None" = None
    latest: Mapping[str, float] = {}

    def __init__(self, plan: Plan, rank: int) -> None:
        self.epochs, self.batches = plan.max_epochs, plan.steps.epoch_batches
        wanted = plan.trainer.enable_progress_bar
        self.has_bar = rank == 0 and (sys.stdout.isatty() if wanted is None else wanted)
        self.has_lines = rank == 0 and not self.has_bar

    def begin_epoch(self, position: Progress) -> None:
        """Start the clock of an epoch; batches of an earlier run do not count for the bar's speed."""
        self.began = time.perf_counter()
        if not self.has_bar:
            return
        title = f"epoch {position.epochs + 1}/{self.epochs}"
        if self.bar is None:
            from tqdm import tqdm  # for a terminal alone

            total, done = self.epochs * self.batches or None, position.epochs * self.batches + position.batch
            style: Any = {"unit": "batch", "mininterval": 0.2, "leave": False, "dynamic_ncols": True}
            self.bar = tqdm(desc=title, total=total, initial=done, bar_format=BAR if total else None, **style)
        self.bar.set_description_str(title, refresh=False)

    def end_batch(self, metrics: Mapping[str, float]) -> None:
        """Show that a batch has ended, and the values of the module's `prog_bar` whenever tqdm draws the bar."""
        if self.bar is not None and self.bar.update():
            self.show(metrics)

    def show(self, metrics: Mapping[str, float]) -> None:
        """Show the latest metrics in the bar, those of validation first: a narrow terminal cuts the rest off."""
        self.latest = metrics
        if self.bar is not None:
            named = sorted(metrics.items(), key=lambda item: (not item[0].startswith("val"), item[0]))
            self.bar.set_postfix_str(" ".join(f"{name} {float(value):.4g}" for name, value in named))

    def end_epoch(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Print the line of an epoch, counted from 1; without metrics, with the values of its last batch."""
        if self.has_lines:
            named = "  ".join(f"{name} {value:.4f}" for name, value in sorted((metrics or self.latest).items()))
            print(f"epoch {epoch}/{self.epochs}  {named}  {time.perf_counter() - self.began:.2f} s", flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
