"""Wrong calls on purpose, each on new ranks: the error that the user reads, and after how many seconds.

The ranks make each call in a group at torch's debug level DETAIL (as TORCH_DISTRIBUTED_DEBUG=DETAIL sets for every
group): before each collective they compare what they are about to call, and name the rank that is missing. That costs a
round of small messages for each call, so it is for debugging.
"""

import faulthandler
import os
import re
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from lockstep.collectives.calls import tensor_device
from lockstep.collectives.ranks import TourPayload
from lockstep.collectives.runner import RankOptions, world_of
from lockstep.config_error import ConfigError, require, shorten
from lockstep.entry_point import make_output_dir
from lockstep.files import save_table
from lockstep.launch.external_launcher import rank_from_env
from lockstep.launch.failure import RankFailed
from lockstep.launch.start import start_ranks
from lockstep.launch.topology import RankContext
from lockstep.schemas.run import Timeout
from lockstep.text_table import terminal_width
from lockstep.world import World

Group = dist.ProcessGroup | None
SLACK = 5.0
"""Seconds beyond the timeout after which a rank is ended."""
START = 30.0
"""Seconds within which ranks start and end: the time of a rank that crashed has them in it."""


@dataclass(frozen=True)
class FailureOptions(RankOptions):
    """The keys of the subcommand; `timeout` is that of each case."""

    devices: int = 2
    timeout: Timeout = 5.0

    def __post_init__(self) -> None:
        require(self.devices >= 2, "devices", self.devices, "the failure cases take two", "devices=2, or more")
        reason, hint = "the ranks of each case meet anew, and a file serves once", "init_method=file"
        require(not self.init_method.startswith("file://"), "init_method", self.init_method, reason, hint)


@dataclass(frozen=True)
class FailureCase:
    """The last rank makes its own call (with the timeout); it is caught if the message of rank 0 matches `pattern`."""

    title: str
    others: Callable[[Group], object]
    last: Callable[[Group, float], object]
    pattern: str


def ones(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(count, dtype=dtype, device=tensor_device())


def send_from_rank_0(rank: int) -> None:
    """Send to a rank. gloo has no entry for one that does not exist: it crashes or waits until its timeout."""
    if dist.get_rank() == 0:
        dist.send(ones(4), dst=rank)


CASES = {
    "root": FailureCase(
        "broadcast from a root that does not exist",
        lambda group: dist.broadcast(ones(4), src=dist.get_world_size() + 5, group=group),
        lambda group, _timeout: dist.broadcast(ones(4), src=dist.get_world_size() + 5, group=group),
        "root rank|Global rank",
    ),
    "shapes": FailureCase(
        "all-reduce of different shapes",
        lambda group: dist.all_reduce(ones(4), group=group),
        lambda group, _timeout: dist.all_reduce(ones(3), group=group),
        r"\[4\].*\[3\]",
    ),
    "dtypes": FailureCase(
        "all-reduce of different dtypes",
        lambda group: dist.all_reduce(ones(4), group=group),
        lambda group, _timeout: dist.all_reduce(ones(4, torch.float64), group=group),
        "Float.*Double",
    ),
    "collectives": FailureCase(
        "different collectives",
        lambda group: dist.all_reduce(ones(4), group=group),
        lambda group, _timeout: dist.broadcast(ones(4), src=0, group=group),
        "ALLREDUCE.*BROADCAST",
    ),
    "peer": FailureCase(
        "send to a rank that does not exist (gloo crashes, or waits)",
        lambda _group: send_from_rank_0(dist.get_world_size() + 5),
        lambda _group, _timeout: None,
        "rank 0|Wait timeout|Timed out",
    ),
    "sizes": FailureCase(
        "receive of another size than was sent (gloo crashes)",
        lambda _group: send_from_rank_0(dist.get_world_size() - 1),
        lambda _group, _timeout: dist.recv(ones(3), src=0),
        r"rank [1-9]",
    ),
    "missing": FailureCase(
        "the last rank does not call the all-reduce",
        lambda group: dist.all_reduce(ones(4), group=group),
        lambda _group, timeout: time.sleep(timeout + 1),
        "monitoredBarrier",
    ),
}


def run_failures(options: FailureOptions, names: Sequence[str] = tuple(CASES)) -> int:
    """Print the outcome of each case; return exit status 1 if one was not caught."""
    if rank_from_env() is not None:
        raise ConfigError("failures: each case starts its own ranks; run it without torchrun or SLURM.")
    world = world_of(options)
    make_output_dir(Path(world.folder))
    rows: list[dict[str, object]] = []
    for number, name in enumerate(names, start=1):
        message, seconds = run_case(name, world)
        caught = is_caught(CASES[name], message, seconds, options.timeout)
        verdict = f"{'caught' if caught else 'NOT CAUGHT'} after {seconds:.1f} s"
        print(f"{number}/{len(names)} {CASES[name].title}: {verdict}")
        print(textwrap.indent(textwrap.fill(shorten(message), terminal_width() - 6), " " * 6), flush=True)
        rows.append({"case": CASES[name].title, "message": message, "seconds": f"{seconds:.1f}", "caught": caught})
    save_table(Path(world.folder) / "failures.csv", rows)
    count = sum(row["caught"] is True for row in rows)
    print(f"\n{count} of {len(rows)} failures caught (timeout {options.timeout:g} s)\n  {world.folder}", flush=True)
    return 0 if count == len(rows) else 1


def is_caught(case: FailureCase, message: str, seconds: float, timeout: float) -> bool:
    limit = timeout + SLACK + (START if message.startswith("rank ") else 0)
    return bool(re.search(case.pattern, message)) and seconds <= limit


def run_case(name: str, world: World) -> tuple[str, float]:
    """Start ranks for one case; return the message and the seconds until it came, with the start if a rank died."""
    folder = Path(world.folder, name)
    folder.mkdir()
    began = time.monotonic()
    try:
        outcome: tuple[str, float] = start_ranks(TourPayload(replace(world, folder=str(folder)), case=name), __name__)
        return outcome
    except RankFailed as error:
        lines = str(error).strip().splitlines()
        return " ".join(dict.fromkeys((lines[0], lines[-1]))), time.monotonic() - began


def run(payload: TourPayload, context: RankContext) -> tuple[str, float]:
    """Make the call of a case on this rank; return the message and the seconds until it came."""
    timeout = payload.world.process_group.timeout
    with exit_if_hung(timeout):
        group = debug_group(timeout)
        began = time.monotonic()
        try:
            case = CASES[payload.case]
            case.last(group, timeout) if context.rank == context.world_size - 1 else case.others(group)
            message = "no error: the call returned"
        except (RuntimeError, ValueError) as error:
            message = " ".join(str(error).split())
        return message, time.monotonic() - began


def debug_group(timeout: float) -> Group:
    """Create a second group of all ranks, which compares their calls, and wait until all are connected.

    A rank that fails at once and ends would break the group for one that still connects.
    """
    dist.set_debug_level(dist.DebugLevel.DETAIL)  # type: ignore[attr-defined]
    group = dist.new_group(timeout=timedelta(seconds=timeout))
    dist.barrier()
    assert not isinstance(group, int), "this rank is a member"
    return group


@contextmanager
def exit_if_hung(timeout: float) -> Iterator[None]:
    """End the process soon after its timeout, even if torch never returns; its C++ logs to stderr are dropped."""
    stderr = os.dup(2)
    with Path(os.devnull).open("w") as null:
        os.dup2(null.fileno(), 2)
        faulthandler.dump_traceback_later(timeout + SLACK, exit=True, file=null)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            os.dup2(stderr, 2)
            os.close(stderr)
