"""What a rank takes beside time: resident memory, looked at from outside, and calls to its peers, counted within."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lockstep import launch
from lockstep.bench.calls_work import Calls, Counted
from lockstep.bench.row import Goal, Row
from lockstep.bench.setting import Setting
from lockstep.bench.startup import IMPORT
from lockstep.config_error import ConfigError
from lockstep.schemas.engine import ENGINES

PROC = Path("/proc")
LOOK = 0.02
"""Seconds between two looks at the ranks."""
PRINTED = f"{IMPORT}; print(open('/proc/self/status').read())"
CALLS = "lockstep.bench.calls"
"""The engine that counts the calls of another."""


def memory(setting: Setting) -> list[Row]:
    """The most that any rank held, against a process that only imports Lightning.

    Resident is what the goal says. Pages of libraries that a fork server has mapped count in a rank only once it
    touches them; anonymous memory, which counts from the start, is free of that.
    """
    if not (PROC / "self" / "status").is_file():
        raise ConfigError("memory: this system has no /proc to look at ranks from outside; write only=… without it.")
    part = ("data=mnist", setting.mnist(), "model=mlp", "batch_size=128", "max_epochs=1", "accelerator=cpu")
    overrides = {
        "raw": ("engine=raw", *part),
        "lightning": ("engine=lightning", *part),
        "lightning ddp 2": ("engine=lightning", "strategy=ddp", "devices=2", *part),
    }
    held: dict[str, list[Held]] = {name: [] for name in (IMPORT, *overrides)}
    for number in range(1, setting.dear_rounds + 1):
        setting.say(f"round {number}/{setting.dear_rounds}")
        held[IMPORT].append(held_by(setting.command("-c", PRINTED)[1]))
        for name, own in overrides.items():
            held[name].append(largest_rank(setting, *own))
    found = []
    for part_of_it in Held._fields:
        values = {name: tuple(getattr(one, part_of_it) for one in rounds) for name, rounds in held.items()}
        imported = values.pop(IMPORT)
        found.append(Row("memory", f"{IMPORT}, {part_of_it}", "MB", imported))
        row = partial(Row, "memory", unit="MB", against=IMPORT, yardstick=imported, by="difference", goal=Goal(250))
        found += [row(f"{name}, {part_of_it}", values=own) for name, own in values.items()]
    return found


class Held(NamedTuple):
    """Memory of a process in MB, 10⁶ bytes: all that is resident, and what of it is of no file."""

    resident: float
    anonymous: float


def held_by(status: str, peak: bool = False) -> Held:
    """What /proc/PID/status says of now; with `peak`, the most that was ever resident."""
    sizes = dict(re.findall(r"^(VmHWM|VmRSS|RssAnon):\s+(\d+) kB", status, re.MULTILINE))
    return Held(*(int(sizes.get(key, 0)) * 1024 / 1e6 for key in ("VmHWM" if peak else "VmRSS", "RssAnon")))


def largest_rank(setting: Setting, *overrides: str) -> Held:
    """The most over the ranks of one run: processes that the fork server of this one has forked."""
    with watched(os.getpid()) as most:
        setting.trained(*overrides, "test=false")
    return Held(*map(max, zip(*most.values(), strict=True)))


@contextmanager
def watched(root: int) -> Iterator[dict[int, Held]]:
    """The most that each grandchild of a process holds meanwhile, by process."""
    most: dict[int, Held] = {}
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK):
            for child in grandchildren(root):
                with suppress(OSError):  # it has ended
                    held = held_by((PROC / str(child) / "status").read_text(), peak=True)
                    most[child] = Held(*map(max, held, most.get(child, held)))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield most
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
            calls: Calls = launch.start(Counted(plan, ENGINES[engine]), CALLS)
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
            row(f"{engine}, sums per step", values=(step,), against="buckets", yardstick=buckets, goal=Goal(1.0)),
            row(f"{engine}, sums per epoch", values=(epoch,), goal=Goal(1.0)),
            row(f"{engine}, others per epoch", values=(float(others),)),
        ]
    return found
