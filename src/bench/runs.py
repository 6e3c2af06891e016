"""Ways to measure a run: by its metrics, by a module on its ranks, or by the time of a whole command; the table."""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from lockstep.build import plan_from
from lockstep.command_line.compose import compose_job
from lockstep.config_error import ConfigError
from lockstep.job import run
from lockstep.launch.start import start_ranks
from lockstep.plan import Plan
from lockstep.world import World

BASELINES = {"source": "bench.baselines", "bare": "bench.baselines", "stock": "bench.lightning_baseline"}
"""The module of each baseline, which ranks run; `stock` is Lightning's own Trainer."""


@dataclass(frozen=True)
class BenchPayload:
    """A plan to run, and the name of the baseline that runs it."""

    world: World
    plan: Plan
    subject: str


@dataclass(frozen=True)
class BenchContext:
    """How thoroughly to measure; MNIST is below `root`, runs write into `scratch`, `title` begins each message."""

    quick: bool
    root: str
    scratch: Path
    title: str = "bench"

    def report(self, step: str) -> None:
        print(f"{self.title}, {step}", flush=True)

    def train_seconds(self, engine: str, *overrides: str) -> float:
        """Return the seconds of training in a run by an engine, or by the baseline of this name in a like process."""
        with TemporaryDirectory(dir=self.scratch, ignore_cleanup_errors=True) as folder:
            if engine not in BASELINES:
                return float(run([f"engine={engine}", *overrides, f"hydra.run.dir={folder}"])["train_seconds"])
            plan = plan_from(compose_job([*overrides])[0], Path(folder))
            return float(start_ranks(BenchPayload(plan.world, plan, engine), BASELINES[engine]))

    def time_command(self, *words: str, status: int = 0) -> float:
        """Return the seconds of a whole command; raise ConfigError if it exits with another status."""
        began = time.perf_counter()
        process = subprocess.run(
            [sys.executable, *words], cwd=self.scratch, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        seconds = time.perf_counter() - began
        if process.returncode != status:
            last = process.stderr.strip().rpartition("\n")[2]
            raise ConfigError(f"python {' '.join(words)}: exited with status {process.returncode}; last line: {last}")
        return seconds


LONG_ENOUGH = 0.3
"""Seconds that each timing of a ratio must last: one-off costs, such as the choice of kernels, are part of it."""
INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Measurement:
    """The seconds of a variant and of its baseline, one for each round.

    The goal is met if in each round the ratio to the baseline, or the value without a baseline, is at most `goal`.
    """

    workload: str
    variant: str
    values: tuple[float, ...]
    baseline: str = ""
    baseline_values: tuple[float, ...] = ()
    goal: float | None = None

    @property
    def ratios(self) -> tuple[float, ...]:
        """The ratio to the baseline in each round; empty without a baseline."""
        pairs = zip(self.values, self.baseline_values, strict=True) if self.baseline else ()
        return tuple(value / base for value, base in pairs)

    @property
    def goal_met(self) -> str:
        """yes, no, inconclusive (a short timing, or rounds on both sides of the goal), or empty without a goal."""
        if self.goal is None:
            return ""
        rounds = {value <= self.goal for value in self.ratios or self.values}
        too_short = bool(self.baseline) and min(self.values + self.baseline_values) < LONG_ENOUGH
        if too_short or len(rounds) > 1:
            return INCONCLUSIVE
        return "yes" if rounds == {True} else "no"

    def row(self) -> dict[str, object]:
        """Return the cells of the table and of bench.csv, by their headings."""
        ratios: Any = self.ratios or (None,)
        return {
            "workload": self.workload,
            "variant": self.variant,
            "median": median(self.values),
            "min": min(self.values),
            "max": max(self.values),
            "against": self.baseline,
            "ratio": median(ratios),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
            "goal": self.goal,
            "met": self.goal_met,
        }
