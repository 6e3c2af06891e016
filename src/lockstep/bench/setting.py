"""What every workload is measured with: how thoroughly, where MNIST lies, and runs that leave nothing behind."""

import itertools
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep import data, launch
from lockstep.bench.loops_work import Loop, Recipe
from lockstep.build import plan_from, usable_cores
from lockstep.compose import compose_job
from lockstep.conf import CONF
from lockstep.config_error import ConfigError, shell_quote_override
from lockstep.job import run
from lockstep.plan import Plan
from lockstep.run_files import Metrics

TRAIN = CONF.parent / "train.py"


@dataclass(frozen=True)
class Setting:
    """`rounds` are of what takes seconds, `dear_rounds` of what takes longer.

    `scratch` is a folder for what runs leave; `say` tells how far the workload is.
    """

    quick: bool
    rounds: int
    dear_rounds: int
    root: str
    scratch: Path
    say: Callable[[str], None]
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def cores(self) -> int:
        return usable_cores()

    def pick(self, quick: int, full: int) -> int:
        return quick if self.quick else full

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A new one for each run: checkpoints of dozens of runs are large."""
        path = self.scratch / str(next(self.numbers))
        path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def mnist(self) -> str:
        return override("data.root", Path(self.root).absolute())

    def trained(self, *overrides: str) -> Metrics:
        """A whole run, as a user makes it: its metrics."""
        with self.folder() as folder:
            return run([*overrides, override("hydra.run.dir", folder)])

    def plan(self, folder: Path, *overrides: str) -> Plan:
        config, _ = compose_job([*overrides])
        plan = plan_from(config, folder)
        data.prepare(plan.data)
        return plan

    def looped(self, recipe: Recipe, *overrides: str) -> float:
        """Seconds of training by a loop of the bench's own, in a process like those of the engines."""
        with self.folder() as folder:
            seconds: float = launch.start(Loop(recipe, self.plan(folder, *overrides)), LOOPS)
            return seconds

    def command(self, *words: str, status: int = 0) -> tuple[float, str]:
        """Seconds that a whole command took, and what it printed."""
        began = time.perf_counter()
        ended = subprocess.run(
            [sys.executable, *words], cwd=self.scratch, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        seconds = time.perf_counter() - began
        require_status(words, status, ended)
        return seconds, ended.stdout


LOOPS = "lockstep.bench.loops"
"""The engine that runs a Loop."""


def override(key: str, value: object) -> str:
    """As it stands in the list of overrides, whatever is in its value."""
    return shlex.split(shell_quote_override(key, value))[0]


def require_status(words: tuple[str, ...], status: int, ended: "subprocess.CompletedProcess[Any]") -> None:
    if ended.returncode != status:
        last = (ended.stderr.strip() or "nothing").splitlines()[-1]
        why = f"it ended with status {ended.returncode} and said last: {last}"
        raise ConfigError(f"python {' '.join(words)}: {why}; write only=… with the other workloads.")
