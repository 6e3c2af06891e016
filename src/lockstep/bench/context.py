"""What every workload is measured with: how thoroughly, where MNIST lies, and runs that leave nothing behind."""

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from lockstep import data
from lockstep.build import plan_from
from lockstep.command_line.compose import compose_job
from lockstep.config_error import ConfigError, shell_quote_override
from lockstep.job import run
from lockstep.launch.start import start_ranks
from lockstep.plan import Plan
from lockstep.run_files import Metrics
from lockstep.schemas.engine import ENGINES
from lockstep.world import World

BASELINES, STRANGERS, PROBES = "lockstep.bench.baselines", "lockstep.bench.strangers", "lockstep.bench.probes"
"""Modules that ranks call, named without an import of torch."""
STOCK = "stock"
"""The name of Lightning's own Trainer as a baseline."""


@dataclass(frozen=True)
class BenchPayload:
    """What ranks run: a plan, by a baseline of this name, or, probed, by the engine in this module."""

    plan: Plan
    subject: str
    probe: str = ""

    @property
    def world(self) -> World:
        return self.plan.world


@dataclass(frozen=True)
class BenchContext:
    """`rounds` are of what takes seconds, `slow_rounds` of what takes longer.

    `scratch` is a folder for what runs leave; `report` tells how far the workload is.
    """

    quick: bool
    rounds: int
    slow_rounds: int
    root: str
    scratch: Path
    report: Callable[[str], None]

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A new one for each run, removed at once: checkpoints of dozens of runs are large."""
        with TemporaryDirectory(dir=self.scratch, ignore_cleanup_errors=True) as name:
            yield Path(name)

    def mnist(self) -> str:
        return override("data.root", Path(self.root).absolute())

    def train(self, *overrides: str) -> Metrics:
        """A whole run, as a user makes it: its metrics."""
        with self.folder() as folder:
            return run([*overrides, override("hydra.run.dir", folder)])

    def plan(self, folder: Path, *overrides: str) -> Plan:
        config, _ = compose_job([*overrides])
        plan = plan_from(config, folder)
        data.prepare(plan.data)
        return plan

    def time_baseline(self, name: str, *overrides: str) -> float:
        """Seconds of training by a loop of baselines.py, or by `stock` Lightning, in a process like the engines'."""
        module = STRANGERS if name == STOCK else BASELINES
        with self.folder() as folder:
            seconds: float = start_ranks(BenchPayload(self.plan(folder, *overrides), name), module)
            return seconds

    def probe(self, name: str, engine: str, *overrides: str) -> tuple[float, ...]:
        """Return what a probe of probes.py measures in a run of an engine."""
        with self.folder() as folder:
            payload = BenchPayload(self.plan(folder, *overrides, f"engine={engine}"), ENGINES[engine], name)
            numbers: tuple[float, ...] = start_ranks(payload, PROBES)
            return numbers

    def time_command(self, *words: str, status: int = 0) -> float:
        """Seconds that a whole command took; raises ConfigError where it ends with another status."""
        began = time.perf_counter()
        ended = subprocess.run(
            [sys.executable, *words], cwd=self.scratch, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        seconds = time.perf_counter() - began
        if ended.returncode != status:
            last = (ended.stderr.strip() or "nothing").splitlines()[-1]
            reason = f"it ended with status {ended.returncode} and said last: {last}"
            raise ConfigError(f"python {' '.join(words)}: {reason}; write only=… with the other workloads.")
        return seconds


def override(key: str, value: object) -> str:
    """As it stands in the list of overrides, whatever is in its value."""
    return shlex.split(shell_quote_override(key, value))[0]
