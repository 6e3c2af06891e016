"""Seconds of a run by phase, a table with `profiler=simple`; with `profiler=pytorch` operations of some batches."""

import os
import time
from pathlib import Path
from typing import Any

import torch

from lockstep.files import short_path
from lockstep.plan import Plan
from lockstep.progress import print_beside_bar
from lockstep.text_table import columns_text, figures

PHASES = ("data", "forward", "backward", "optimizer", "rest")
WAIT, BATCHES = 3, 5  # training batches before the profile, and within it
ROWS, LONGEST_NAME = 10, 50
FOLDER, TRACE = "profiler", "rank_0.pt.trace.json"  # TensorBoard's plugin for profiles looks for this ending


class Phases:
    """Seconds of training by phase, of what a run does beside it, and samples. `mark` ends a phase and begins the next.

    On a GPU these are the times of the calls, and kernels run later, unless it `waits` for the GPU at each mark.
    DistributedDataParallel communicates in `backward`.
    totals: seconds of all complete epochs by phase, and of what is not training.
    """

    since: float

    def __init__(self, device: torch.device, waits: bool = False) -> None:
        self.device, self.waits = device, waits
        self.totals = dict.fromkeys(("start", *PHASES), 0.0)
        self.by_phase = dict.fromkeys(PHASES, 0.0)
        self.steps = self.samples = 0
        self.begin()

    def begin(self, ended: str = "") -> None:
        """Begin with a batch; the time since the last mark does not count as training, but as what has `ended`."""
        now = time.perf_counter()
        if ended:
            self.totals[ended] = self.totals.get(ended, 0.0) + now - self.since
        self.since = now

    def begin_epoch(self) -> None:
        self.begin("between epochs" if self.totals["rest"] else "start")

    def mark(self, phase: str) -> None:
        if self.waits:
            synchronize(self.device)
        now = time.perf_counter()
        self.by_phase[phase] += now - self.since
        self.since = now

    def step(self, samples: int) -> None:
        self.mark("rest")
        self.steps += 1
        self.samples += samples

    @property
    def seconds(self) -> float:
        """Return the seconds of training."""
        return sum(self.totals[phase] + self.by_phase[phase] for phase in PHASES)

    @property
    def total_seconds(self) -> dict[str, float]:
        """Return the seconds of the run by phase, without phases that took no time."""
        seconds = {name: value + self.by_phase.get(name, 0.0) for name, value in self.totals.items()}
        return {name: value for name, value in seconds.items() if value}

    def synchronize(self) -> None:
        """Count what a GPU still computes as training."""
        if self.steps:
            synchronize(self.device)
            self.mark("rest")

    def end_epoch(self) -> dict[str, float]:
        """Return the mean seconds of a batch by phase, without phases that took no time."""
        self.synchronize()
        for name, seconds in self.by_phase.items():
            self.totals[name] += seconds
        means = {name: seconds / self.steps for name, seconds in self.by_phase.items() if seconds}
        self.by_phase, self.steps = dict.fromkeys(PHASES, 0.0), 0
        self.begin()
        return means


def synchronize(device: torch.device) -> None:
    """Wait for the work that is queued on a GPU, before reading the clock."""
    if device.type == "cuda":
        torch.cuda.synchronize()


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
