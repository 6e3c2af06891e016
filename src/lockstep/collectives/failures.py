"""Every failure case in ranks of its own: the error that the user reads, and after how many seconds.

On the ranks each is made in a group at torch's debug level DETAIL (what TORCH_DISTRIBUTED_DEBUG=DETAIL does for every
group): before each collective the ranks then compare what they are about to call, and name who is missing. It costs a
round of small messages for each call, so it is for finding faults.
"""

import re
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep import launch
from lockstep.collectives.failure_cases import CALLED, CASES, SLACK, FailureCase, FailurePayload
from lockstep.collectives.runner import RankOptions, world_of
from lockstep.config_error import ConfigError, require, shorten
from lockstep.files import save_table
from lockstep.launch import RankFailed
from lockstep.text_table import terminal_width
from lockstep.tool_command import make_output_dir
from lockstep.world import World

ENGINE = "lockstep.collectives.failure_cases"


@dataclass(frozen=True)
class FailureOptions(RankOptions):
    """The keys of the subcommand: `timeout` is that of each case."""

    devices: int = 2
    timeout: float = 5.0

    def __post_init__(self) -> None:
        require(self.devices >= 2, "devices", self.devices, "the failure cases take two", "devices=2, or more")
        why, instead = "the ranks of each case meet anew, and a file serves once", "init_method=file"
        require(not self.init_method.startswith("file://"), "init_method", self.init_method, why, instead)


def run_failures(options: FailureOptions, names: Sequence[str] = tuple(CASES)) -> int:
    """Print what comes of each case; exit status 1 if one wasn't caught within its time."""
    if launch.rank_from_env() is not None:
        raise ConfigError("failures: each starts ranks of its own; write it without torchrun or SLURM around it.")
    world = world_of(options)
    make_output_dir(Path(world.folder))
    rows: list[dict[str, object]] = []
    for name in names:
        message, seconds = run_case(name, world)
        caught = is_caught(CASES[name], message, seconds, options.timeout)
        verdict = f"{'caught' if caught else 'NOT CAUGHT'} after {seconds:.1f} s"
        print(f"{len(rows) + 1}/{len(names)} {CASES[name].title}: {verdict}")
        print(textwrap.indent(textwrap.fill(shorten(message), terminal_width() - 6), " " * 6), flush=True)
        rows.append({"case": CASES[name].title, "message": message, "seconds": f"{seconds:.1f}", "caught": caught})
    save_table(Path(world.folder) / "failures.csv", rows)
    count = sum(row["caught"] is True for row in rows)
    print(f"\n{count} of {len(rows)} failures caught (timeout {options.timeout:g} s)\n  {world.folder}", flush=True)
    return 0 if count == len(rows) else 1


def is_caught(case: FailureCase, message: str, seconds: float, timeout: float) -> bool:
    return bool(re.search(case.pattern, message)) and seconds <= timeout + SLACK


def run_case(name: str, world: World) -> tuple[str, float]:
    """One case in ranks of its own: the message, which may be that a rank died, and after how many seconds."""
    folder = Path(world.folder, name)
    folder.mkdir()
    world = replace(world, distributed=CASES[name].call is not None, folder=str(folder))
    began = time.time()
    try:
        outcome: tuple[str, float] = launch.start(FailurePayload(world, name), ENGINE)
        return outcome
    except RankFailed as error:
        lines, called = str(error).strip().splitlines(), folder / CALLED
        if called.exists():  # the ranks' start doesn't count
            began = called.stat().st_mtime
        return " ".join(dict.fromkeys((lines[0], lines[-1]))), time.time() - began
