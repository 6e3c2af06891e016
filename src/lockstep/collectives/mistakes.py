"""Wrong use on purpose, each in fresh ranks: what the user reads, and after how many seconds.

On the ranks each mistake is made in a group at torch's debug level DETAIL (what TORCH_DISTRIBUTED_DEBUG=DETAIL does for
every group): before each collective the ranks then compare what they are about to call, and name who stays away. It
costs a round of small messages for each call, so it is for finding faults. This file is the table; wrong.py the ranks.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep import launch
from lockstep.collectives.guide import make
from lockstep.collectives.table import mistakes_text
from lockstep.collectives.tour import Ranks, world_of
from lockstep.collectives.wrong import SLACK, WRONG, Caught, Work, Wrong
from lockstep.config_error import ConfigError, require
from lockstep.files import save_table
from lockstep.launch import RankFailed
from lockstep.text_table import terminal_width
from lockstep.world import World

ENGINE = "lockstep.collectives.wrong"


@dataclass(frozen=True)
class Mistakes(Ranks):
    """The keys of the command: `timeout` is the limit of each mistake."""

    devices: int = 2
    timeout: float = 5.0

    def __post_init__(self) -> None:
        require(self.devices >= 2, "devices", self.devices, "these mistakes take two", "devices=2, or more")
        why, instead = "the ranks of each mistake meet anew, and a file serves once", "init_method=file"
        require(not self.init_method.startswith("file://"), "init_method", self.init_method, why, instead)


def make_all(wanted: Mistakes, names: Sequence[str] = tuple(WRONG)) -> int:
    """Print a row for each mistake; exit status 1 if one was not caught within its time."""
    if launch.rank_from_env() is not None:
        raise ConfigError("mistakes: ranks are started for each anew; write it without torchrun or SLURM around it.")
    world = world_of(wanted)
    folder = Path(world.folder)
    make(folder)
    rows: list[dict[str, object]] = []
    for name in names:
        print(f"mistake {len(rows) + 1}/{len(names)}: {WRONG[name].done}", flush=True)
        rows.append(row(WRONG[name], made(name, world), wanted.timeout))
    save_table(folder / "mistakes.csv", rows)
    caught = sum(row["caught"] == "yes" for row in rows)
    print(f"\n{mistakes_text(rows, terminal_width())}\n")
    print(f"{caught} of {len(rows)} mistakes caught\n  {folder}", flush=True)
    return 0 if caught == len(rows) else 1


def made(name: str, world: World) -> Caught:
    """Make one mistake in ranks of its own. A rank that dies of it has caught nothing."""
    world = replace(world, distributed=WRONG[name].joined, folder=f"{world.folder}/{name}")
    began = time.monotonic()
    try:
        caught: Caught = launch.start(Work(name, world), ENGINE)
        return caught
    except RankFailed as error:
        says = str(error).strip().splitlines()
        return Caught(f"{says[0]} {says[-1] if len(says) > 1 else ''}".strip(), time.monotonic() - began, False)


def row(wrong: Wrong, caught: Caught, limit: float) -> dict[str, object]:
    in_time = caught.seconds <= limit + SLACK
    return {
        "mistake": wrong.done,
        "what you read": caught.reads,
        "seconds": f"{caught.seconds:.1f}",
        "limit": f"{limit:g}",
        "caught": "yes" if caught.caught and in_time else "no",
    }
