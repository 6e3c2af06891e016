"""The bench from its options to its last line: measure each workload, print the table, save it with a plot.

This process computes nothing. What the runs print goes to runs.log, and only the bench speaks on the terminal.
"""

import os
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TextIO

from lockstep.bench.context import BASELINES, PROBES, BenchContext
from lockstep.bench.measurement import INCONCLUSIVE, Measurement, bench_table
from lockstep.bench.plot import draw
from lockstep.bench.workloads import ON_MNIST, WORKLOADS
from lockstep.config_error import ConfigError, config_error, option_error, require
from lockstep.data.mnist import FILES, find
from lockstep.entry_point import make_output_dir, output_dir
from lockstep.files import save_table, save_text
from lockstep.launch import forkserver
from lockstep.launch.accelerator import gpu_count
from lockstep.launch.external_launcher import rank_from_env
from lockstep.launch.private_dir import private_folder
from lockstep.schemas.engine import ENGINES
from lockstep.streams import safe_stream
from lockstep.text_table import width_shown

ROUNDS = {False: (3, 3), True: (2, 1)}
"""By `quick`: how often fast and slow variants take their turn."""


@dataclass(frozen=True)
class BenchOptions:
    """The keys of the command."""

    quick: bool = False
    only: str = "all"
    rounds: int | None = None
    root: str = "data"

    def __post_init__(self) -> None:
        if self.rounds is not None:
            require(self.rounds >= 1, "rounds", self.rounds, "it must be 1 or more", "rounds=3, say")

    @property
    def fast_and_slow_rounds(self) -> tuple[int, int]:
        return (self.rounds, self.rounds) if self.rounds else ROUNDS[self.quick]

    def names(self, known: Collection[str]) -> list[str]:
        """The chosen workloads, in the order of the table."""
        if self.only == "all":
            return [*known]
        chosen = self.only.split(",")
        for name in chosen:
            if name not in known:
                raise option_error("only", name, "there is no such workload", known)
        return [name for name in known if name in chosen]

    def missing_file(self) -> str:
        """The first of MNIST's files that is not below `root`."""
        return next((file.name for file in FILES if find(Path(self.root), file) is None), "")


def run_bench(options: BenchOptions) -> int:
    """Exit status 0, whatever the ratios are: it is a measurement."""
    if rank_from_env() is not None:
        raise ConfigError("bench: it starts ranks of its own; write it without torchrun or SLURM around it.")
    names, missing = options.names(WORKLOADS), options.missing_file()
    left_out = [name for name in names if missing and name in ON_MNIST]
    names = [name for name in names if name not in left_out]
    if not names:
        reason = f"{missing} is not below it, and all of {', '.join(left_out)} train on MNIST"
        raise config_error("root", options.root, reason, "root=FOLDER with MNIST/raw in it")
    from lockstep.monitor.texts import versions_and_machine  # with torch

    began, folder = time.perf_counter(), output_dir("bench")
    make_output_dir(folder)
    rows = {"date": f"{datetime.now():%Y-%m-%d %H:%M}", **versions_and_machine(gpu=gpu_count() > 0)}
    head = "".join(f"{key}: {value}\n" for key, value in rows.items() if value)
    save_text(folder / "machine.txt", head)
    with redirected_output(folder / "runs.log") as terminal:
        print(head, end="", file=terminal, flush=True)
        if left_out:
            reason = f"left out, {missing} is not below root={options.root}; write root=FOLDER with MNIST/raw in it"
            print(f"{', '.join(left_out)}: {reason}", file=terminal, flush=True)
        measurements = measure(names, options, folder, terminal)
    draw(measurements, folder / "bench.png")
    results = [row.goal_met for row in measurements if row.goal is not None]
    count = f"{results.count('yes')} of {len(results)} goals met, {results.count(INCONCLUSIVE)} {INCONCLUSIVE}"
    print(f"\n{bench_table(measurements, width_shown())}\n", flush=True)
    print(f"{count}; {time.perf_counter() - began:.0f} s\n  {folder}", flush=True)
    return 0


def measure(names: Sequence[str], options: BenchOptions, folder: Path, terminal: TextIO) -> list[Measurement]:
    """All rows, saved after each workload. What can't be measured here is left out.

    Raises:
        ConfigError: nothing could.
    """
    forkserver.start_forkserver(*ENGINES.values(), BASELINES, PROBES)  # one fork server, which imports them once
    rows: list[Measurement] = []
    refused: ConfigError | None = None
    with tempfile.TemporaryDirectory(prefix="bench-", dir=private_folder()) as scratch:
        for number, name in enumerate(names, start=1):
            at = f"bench {number}/{len(names)}: {name}"

            def report(step: str, at: str = at) -> None:
                print(f"{at}, {step}", file=terminal, flush=True)

            context = BenchContext(options.quick, *options.fast_and_slow_rounds, options.root, Path(scratch), report)
            try:
                rows += WORKLOADS[name](context)
            except ConfigError as error:
                refused = error
                report(f"left out: {error}")
                continue
            save_table(folder / "bench.csv", [row.cells() for row in rows])
    if refused is not None and not rows:
        raise refused
    return rows


@contextmanager
def redirected_output(log: Path) -> Iterator[TextIO]:
    """What this process and all that it starts print goes to a file; gives the terminal."""
    kept, python = [os.dup(number) for number in range(3)], (sys.stdout, sys.stderr)
    for stream in python:
        stream.flush()
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)  # at a terminal runs would be in this process
    with log.open("w", buffering=1) as file, safe_stream(kept[1], python[0]) as terminal:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        sys.stdout = sys.stderr = file
        try:
            yield terminal
        finally:
            sys.stdout, sys.stderr = python
            for number, own in enumerate(kept):
                os.dup2(own, number)
    for own in kept:
        os.close(own)
