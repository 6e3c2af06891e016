"""The bench from its start to its last line: measure each workload, print the table, leave it as files and a picture.

This process computes nothing. What the runs print goes to runs.log, and only the bench speaks on the terminal.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TextIO

from lockstep import launch
from lockstep.bench.machine import machine
from lockstep.bench.picture import draw
from lockstep.bench.ranks import CALLS
from lockstep.bench.roofline import COUNTS
from lockstep.bench.row import NOT_JUDGED, Row
from lockstep.bench.setting import LOOPS, Setting
from lockstep.bench.table import text
from lockstep.bench.wanted import Wanted
from lockstep.bench.workloads import WORKLOADS
from lockstep.config_error import ConfigError, config_error
from lockstep.files import save_table, save_text
from lockstep.schemas.engine import ENGINES
from lockstep.streams import lasting


def guide(wanted: Wanted) -> int:
    """Exit status 0, whatever the ratios are: it is a measurement."""
    if launch.rank_from_env() is not None:
        raise ConfigError("bench: it starts ranks of its own; write it without torchrun or SLURM around it.")
    names = wanted.names(WORKLOADS)
    missing = wanted.missing()
    left_out = [name for name in names if missing and WORKLOADS[name].on_mnist]
    names = [name for name in names if name not in left_out]
    if not names:
        why = f"{missing} is not below it, and all of {', '.join(left_out)} train on MNIST"
        raise config_error("root", wanted.root, why, "root=FOLDER with MNIST/raw in it")
    began = time.perf_counter()
    folder, head = make_folder(), machine()
    with runs_apart(folder / "runs.log") as terminal:
        for key, value in head.items():
            print(f"{key:<9}  {value}", file=terminal, flush=True)
        if left_out:
            named = f"{', '.join(left_out)}: left out, {missing} is not below root={wanted.root}"
            print(f"{named}; write root=FOLDER with MNIST/raw in it", file=terminal, flush=True)
        rows = measured(names, wanted, folder, terminal)
    save_text(folder / "machine.txt", "".join(f"{key}: {value}\n" for key, value in head.items()))
    draw(rows, folder / "bench.png")
    judged = [row.holds for row in rows if row.holds is not None]
    left = sum(row.goal is not None for row in rows) - len(judged)
    held = f"{judged.count(True)} of {len(judged)} goals hold" + (f", {left} {NOT_JUDGED}" if left else "")
    print(f"\n{text(rows)}\n\n{held}; {time.perf_counter() - began:.0f} s")
    print(f"  {folder}", flush=True)
    return 0


def measured(names: Sequence[str], wanted: Wanted, folder: Path, terminal: TextIO) -> list[Row]:
    """All rows, saved as far as they are known after each workload. What cannot be measured here is left out.

    Raises:
        ConfigError: nothing could.
    """
    launch.start_forkserver(*ENGINES.values(), LOOPS, CALLS, COUNTS)  # one fork server, which imports them once
    rows: list[Row] = []
    refused: ConfigError | None = None
    with tempfile.TemporaryDirectory(prefix="bench-", dir=launch.private_folder()) as scratch:
        for number, name in enumerate(names, start=1):
            at = f"bench {number}/{len(names)}: {name}"
            print(f"{at}: {WORKLOADS[name].about}", file=terminal, flush=True)

            def say(step: str, at: str = at) -> None:
                print(f"{at}, {step}", file=terminal, flush=True)

            setting = Setting(wanted.quick, *wanted.cheap_and_dear, wanted.root, Path(scratch), say)
            try:
                rows += WORKLOADS[name].measure(setting)
            except ConfigError as error:
                refused = error
                print(f"{at}: left out: {error}", file=terminal, flush=True)
                continue
            save_table(folder / "bench.csv", [row.cells() for row in rows])
    if refused is not None and not rows:
        raise refused
    return rows


@contextmanager
def runs_apart(log: Path) -> Iterator[TextIO]:
    """What this process and all that it starts say goes to a file; gives the terminal."""
    kept, python = [os.dup(number) for number in range(3)], (sys.stdout, sys.stderr)
    for stream in python:
        stream.flush()
    with Path(os.devnull).open() as nobody:
        os.dup2(nobody.fileno(), 0)  # at a terminal runs would be in this process
    with log.open("w", buffering=1) as file, lasting(kept[1], python[0]) as terminal:
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


def make_folder() -> Path:
    folder = Path("logs", "bench", f"{datetime.now():%Y-%m-%d_%H-%M-%S-%f}").absolute()
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        why = f"the bench's folder cannot be made ({error.strerror})"
        raise config_error("logs/bench", folder, why, "the command in a folder where it can") from None
    return folder
