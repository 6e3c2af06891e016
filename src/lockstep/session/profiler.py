"""`profiler=simple`: a table of a run's seconds by phase. `profiler=pytorch`: the operations of some training batches.

Rank 0 prints them; results do not change.
"""

import os
from pathlib import Path
from typing import Any

import torch

from lockstep.files import short_path
from lockstep.plan import Plan
from lockstep.progress import print_beside_bar
from lockstep.sums.phases import Phases
from lockstep.text_table import columns_text, figures

WAIT, BATCHES = 3, 5  # training batches before the profile, and within it
ROWS, LONGEST_NAME = 10, 50
FOLDER, TRACE = "profiler", "rank_0.pt.trace.json"  # TensorBoard's plugin for profiles looks for this ending


class Profiler:
    """torch's profiler, around a few batches of training on rank 0. As a context manager it ends if the run fails."""

    profile: Any = None

    def __init__(self, plan: Plan, rank: int, device: torch.device) -> None:
        self.is_wanted = plan.profiler == "pytorch" and rank == 0
        self.folder, self.device, self.batches = Path(plan.run_dir) / FOLDER, device, 0
        planned = plan.steps.epoch_batches * plan.max_epochs
        self.first = min(WAIT, planned - 1) if planned else WAIT

    def begin(self) -> None:
        """Begin the profile if `first` batches have been trained."""
        if self.is_wanted and self.batches == self.first:
            from torch.profiler import ProfilerActivity, profile

            os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it reports on stderr that it starts, and a missing GPU
            on_gpu = [ProfilerActivity.CUDA] if self.device.type == "cuda" else []
            self.profile = profile(activities=[ProfilerActivity.CPU, *on_gpu], acc_events=True)
            self.profile.start()

    def end_batch(self) -> None:
        if self.is_wanted:
            self.batches += 1
            if self.batches == self.first + BATCHES:
                self.end()
            self.begin()

    def end(self) -> None:
        """End the profile: print the operations that took longest, and write the trace."""
        if self.profile is None:
            return
        profile, self.profile = self.profile, None
        profile.stop()
        self.folder.mkdir(parents=True, exist_ok=True)
        profile.export_chrome_trace(str(self.folder / TRACE))
        sort_by = "self_device_time_total" if self.device.type == "cuda" else "self_cpu_time_total"
        table = profile.key_averages().table(sort_by, row_limit=ROWS, max_name_column_width=LONGEST_NAME)
        print_beside_bar(f"\nprofile of the training batches {self.first + 1} to {self.batches}\n{table}")
        print_beside_bar(f"trace for chrome://tracing or ui.perfetto.dev:\n  {short_path(self.folder / TRACE)}")

    def __enter__(self) -> "Profiler":
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        if self.profile is not None:
            self.profile.stop()


def phases_text(phases: Phases) -> str:
    """Return the table of the seconds of a run by phase, and their shares."""
    seconds = phases.total_seconds
    total = sum(seconds.values()) or 1.0
    cells = [[name, figures(value), f"{value / total:.0%}"] for name, value in seconds.items()]
    return columns_text(["phase", "seconds", "share"], [*cells, ["total", figures(total), ""]])
