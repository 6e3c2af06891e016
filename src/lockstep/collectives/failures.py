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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from lockstep.collectives.primitives import tensor_device
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

Group = dist.ProcessGroup | None
SLACK = 5.0
"""Seconds beyond the timeout after which a rank is ended."""


@dataclass(frozen=True)
class FailureOptions(RankOptions):
    """The keys of the subcommand; `timeout` is that of each case."""

    devices: int = 2
    timeout: Timeout = 5.0


@dataclass(frozen=True)
class FailureCase:
    """Caught if the message of rank 0 matches `pattern`; the last rank may make its own call (with the timeout)."""

    title: str
    call: Callable[[Group], object]
    pattern: str
    last: Callable[[Group, float], object] | None = None


def ones(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(count, dtype=dtype, device=tensor_device())


def all_reduce(group: Group) -> object:
    return dist.all_reduce(ones(4), group=group)


def send_from_rank_0(rank: int) -> None:
    """Send to a rank. gloo has no entry for one that does not exist: it crashes or waits until its timeout."""
    if dist.get_rank() == 0:
        dist.send(ones(4), dst=rank)


CASES = {
    "root": FailureCase(
        "broadcast from a root that does not exist",
        lambda group: dist.broadcast(ones(4), src=dist.get_world_size() + 5, group=group),
        "root rank|Global rank",
    ),
    "shapes": FailureCase(
        "all-reduce of different shapes",
        all_reduce,
        r"\[4\].*\[3\]",
        lambda group, _timeout: dist.all_reduce(ones(3), group=group),
    ),
    "dtypes": FailureCase(
        "all-reduce of different dtypes",
        all_reduce,
        "Float.*Double",
        lambda group, _timeout: dist.all_reduce(ones(4, torch.float64), group=group),
    ),
    "collectives": FailureCase(
        "different collectives",
        all_reduce,
        "ALLREDUCE.*BROADCAST",
        lambda group, _timeout: dist.broadcast(ones(4), src=0, group=group),
    ),
    "peer": FailureCase(
        "send to a rank that does not exist (gloo crashes, or waits)",
        lambda _group: send_from_rank_0(dist.get_world_size() + 5),
        "rank 0 failed: it was ended by|Wait timeout|Timed out",
    ),
    "sizes": FailureCase(
        "receive of another size than was sent (gloo crashes)",
        lambda _group: send_from_rank_0(dist.get_world_size() - 1),
        "rank [1-9].* failed: it was ended by",
        lambda _group, _timeout: dist.recv(ones(3), src=0),
    ),
    "missing": FailureCase(
        "the last rank does not call the all-reduce",
        all_reduce,
        "monitoredBarrier",
        lambda _group, timeout: time.sleep(timeout + 1),
    ),
}


def run_failures(options: FailureOptions, names: Sequence[str] = tuple(CASES)) -> int:
    """Print the outcome of each case; return exit status 1 if one was not caught."""
    if rank_from_env() is not None:
        raise ConfigError("failures: each case starts its own ranks; run it without torchrun or SLURM.")
    reason = "the ranks of each case meet anew, and a file serves once"
    unusable = options.init_method.startswith("file://")
    require(not unusable, "init_method", options.init_method, reason, "init_method=file")
    world = world_of(options)
    make_output_dir(Path(world.folder))
    rows: list[dict[str, object]] = []
    for number, name in enumerate(names, start=1):
        case, folder = CASES[name], Path(world.folder, name)
        folder.mkdir()
        began = time.monotonic()
        try:
            payload = TourPayload(replace(world, folder=str(folder)), case=name)
            message, seconds = start_ranks(payload, __name__)
        except RankFailed as error:
            lines = str(error).strip().splitlines()
            message, seconds = " ".join(dict.fromkeys((lines[0], lines[-1]))), time.monotonic() - began
        caught = bool(re.search(case.pattern, message))
        print(f"{number}/{len(names)} {case.title}: {'caught' if caught else 'NOT CAUGHT'} after {seconds:.1f} s")
        print(textwrap.indent(textwrap.fill(shorten(message), terminal_width() - 6), " " * 6), flush=True)
        rows.append({"case": case.title, "message": message, "seconds": f"{seconds:.1f}", "caught": caught})
    save_table(Path(world.folder) / "failures.csv", rows)
    count = sum(row["caught"] is True for row in rows)
    print(f"\n{count} of {len(rows)} failures caught (timeout {options.timeout:g} s)\n  {world.folder}", flush=True)
    return 0 if count == len(rows) else 1


def run(payload: TourPayload, context: RankContext) -> tuple[str, float]:
    """Make the call of a case on this rank; return the message and the seconds until it came.

    The process ends soon after its timeout, even if torch never returns; torch's C++ logs to stderr are dropped.
    """
    timeout = payload.world.process_group.timeout
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    faulthandler.dump_traceback_later(timeout + SLACK, exit=True, file=2)
    group = debug_group(timeout)
    began = time.monotonic()
    case = CASES[payload.case]
    try:
        case.last(group, timeout) if case.last and context.rank == context.world_size - 1 else case.call(group)
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
