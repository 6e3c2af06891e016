"""What a rank takes beside time: resident memory, looked at from outside, and calls to its peers, counted within."""

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from lockstep import launch
from lockstep.bench.calls_work import Calls, Counted
from lockstep.bench.row import Goal, Row, alternated
from lockstep.bench.setting import Setting
from lockstep.bench.startup import IMPORT, train
from lockstep.job import ENGINES
from lockstep.refusal import Refusal

PROC = Path("/proc")
LOOK = 0.02
"""Seconds between two looks at the ranks. The kernel keeps the peak of each."""
COUNTING = "lockstep.bench.calls"
"""The engine that counts the calls of another."""


def memory(setting: Setting) -> list[Row]:
    """The most that any rank of an unchanged command held, against a process that only imports Lightning."""
    if not (PROC / "self" / "status").is_file():
        raise Refusal("memory: this system has no /proc to look at ranks from outside; write only=… without it.")
    part = ("data=mnist", setting.mnist(), "model=mlp", "batch_size=128", "max_epochs=1", "accelerator=cpu")
    two = ("strategy=ddp", "devices=2")
    status = f"{IMPORT}; print(open('/proc/self/status').read())"
    ways: dict[str, Callable[[], float]] = {
        IMPORT: lambda: megabytes(setting.command("-c", status)[1]),
        "raw": partial(largest_rank, setting, "engine=raw", *part),
        "lightning": partial(largest_rank, setting, "engine=lightning", *part),
        "lightning ddp 2": partial(largest_rank, setting, "engine=lightning", *two, *part),
    }
    rounds = setting.pick(1, setting.rounds)
    values = alternated(ways, rounds, setting.say)
    imported = values.pop(IMPORT)
    found = [Row("memory", IMPORT, "MB", imported)]
    for name, own in values.items():
        found.append(Row("memory", name, "MB", own, IMPORT, imported, by="difference", goal=Goal(250)))
    return found


def megabytes(status: str) -> float:
    """The peak of resident memory that /proc/PID/status tells, in MB, 10⁶ bytes."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 / 1e6 if found else 0.0


def largest_rank(setting: Setting, *overrides: str) -> float:
    """The peak over the ranks of one command: what its fork server has forked."""
    with setting.folder() as folder:
        words = [sys.executable, *train(*overrides, "test=false", f"hydra.run.dir={folder}/run")]
        process = subprocess.Popen(
            words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        with watched(process.pid) as peaks:
            ended = process.wait()
    if ended or not peaks:
        raise Refusal(f"memory: {' '.join(words[1:])} ended with status {ended}; write only=… without memory.")
    return max(peaks.values())


@contextmanager
def watched(root: int) -> Iterator[dict[int, float]]:
    """The peak of each grandchild of a process, by process."""
    peaks: dict[int, float] = {}
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK):
            for child in grandchildren(root):
                try:
                    peak = megabytes((PROC / str(child) / "status").read_text())
                except OSError:
                    continue  # it has ended
                peaks[child] = max(peak, peaks.get(child, 0.0))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield peaks
    finally:
        ended.set()
        watcher.join()


def grandchildren(root: int) -> list[int]:
    parents = {}
    for path in PROC.glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    return [child for child, parent in parents.items() if parents.get(parent) == root]


def collectives(setting: Setting) -> list[Row]:
    """What a step and an epoch add: runs of few and many steps, of one epoch and of two, told apart by subtraction."""
    shared = ("strategy=ddp", "devices=2", "accelerator=cpu", "data=digits", "model=mlp", "logger=none", "test=false")

    def counted(engine: str, epochs: int, batch_size: int) -> tuple[Calls, int]:
        setting.say(f"{engine}, {epochs} epochs of batches of {batch_size}")
        with setting.folder() as folder:
            own = (f"engine={engine}", f"max_epochs={epochs}", f"batch_size={batch_size}")
            plan = setting.plan(folder, *shared, *own)
            calls: Calls = launch.start(Counted(plan, ENGINES[engine]), COUNTING)
            return calls, plan.total_steps

    found = []
    for engine in ENGINES:
        (few, fewer_steps), (many, more_steps) = counted(engine, 1, 320), counted(engine, 1, 160)
        (twice, _) = counted(engine, 2, 320)
        step = (many.sums - few.sums) / (more_steps - fewer_steps)
        epoch = twice.sums - few.sums - step * fewer_steps
        others = twice.others - few.others
        buckets = (float(few.buckets),)
        row = partial(Row, "collectives", unit="calls")
        found += [
            row(f"{engine}: sums per step", values=(step,), against="buckets", yardstick=buckets, goal=Goal(1.0)),
            row(f"{engine}: sums per epoch, of metrics", values=(epoch,), goal=Goal(1.0)),
            row(f"{engine}: other calls per epoch", values=(float(others),)),
        ]
    return found
