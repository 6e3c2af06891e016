"""Wrong calls on purpose, each on new ranks: the error that the user reads, and after how many seconds.

The group has torch's debug level DETAIL (for any group: TORCH_DISTRIBUTED_DEBUG=DETAIL): ranks compare what they are
about to call, and name the rank that is missing. That costs messages for each call, so it is for debugging.
"""

import faulthandler
import os
import re
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from lockstep.collectives.primitives import tensor_device
from lockstep.collectives.tour import RankOptions as Options
from lockstep.collectives.tour import TourPayload, world_of
from lockstep.config_error import require, shorten
from lockstep.entry_point import make_output_dir
from lockstep.launch.failure import RankFailed
from lockstep.launch.start import start_ranks
from lockstep.launch.topology import RankContext
from lockstep.text_table import terminal_width


class CaseRank(NamedTuple):
    """A rank that makes a wrong call in the group; `last`: whether it is the last rank."""

    group: Any
    last: bool
    timeout: float

    def all_reduce(self, count: int = 4, dtype: torch.dtype = torch.float32) -> None:
        dist.all_reduce(ones(count, dtype), group=self.group)


def ones(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(count, dtype=dtype, device=tensor_device())


CASES: dict[str, tuple[str, Callable[[CaseRank], object]]] = {
    "all-reduce of different shapes": (r"\[4\].*\[3\]", lambda rank: rank.all_reduce(3 if rank.last else 4)),
    "all-reduce of different dtypes": (
        "Float.*Double",
        lambda rank: rank.all_reduce(dtype=torch.float64 if rank.last else torch.float32),
    ),
    "different collectives": (
        "ALLREDUCE.*BROADCAST",
        lambda rank: dist.broadcast(ones(4), 0, group=rank.group) if rank.last else rank.all_reduce(),
    ),
    "receive of another size than was sent (gloo crashes)": (
        "rank [1-9].* failed: it was ended by",
        lambda rank: dist.recv(ones(3)) if rank.last else dist.send(ones(4), dist.get_world_size() - 1),
    ),
    "the last rank does not call the all-reduce": (
        "monitoredBarrier",
        lambda rank: time.sleep(rank.timeout + 1) if rank.last else rank.all_reduce(),
    ),
}
"""By title: what the message of rank 0 matches if the failure is caught, and the wrong call."""


def show(options: Options, titles: Sequence[str] = tuple(CASES)) -> int:
    """Print the outcome of each case; return exit status 1 if one was not caught."""
    method = options.init_method
    require(not method.startswith("file://"), "init_method", method, "a file serves once", "init_method=file")
    world = world_of(options)
    folder, count = Path(world.folder), 0
    for number, title in enumerate(titles, start=1):
        case_folder = folder / str(number)
        make_output_dir(case_folder)
        began = time.monotonic()
        try:
            message, seconds = start_ranks(TourPayload(replace(world, folder=str(case_folder)), case=title), __name__)
        except RankFailed as error:
            lines = str(error).strip().splitlines()
            message, seconds = " ".join(dict.fromkeys((lines[0], lines[-1]))), time.monotonic() - began
        caught = bool(re.search(CASES[title][0], message))
        print(f"{number}/{len(titles)} {title}: {'caught' if caught else 'NOT CAUGHT'} after {seconds:.1f} s")
        print(textwrap.indent(textwrap.fill(shorten(message), terminal_width() - 6), " " * 6), flush=True)
        count += caught
    print(f"\n{count} of {len(titles)} failures caught (timeout {options.timeout:g} s)\n  {folder}", flush=True)
    return 0 if count == len(titles) else 1


def run(payload: TourPayload, context: RankContext) -> tuple[str, float]:
    """Make the call of a case on this rank; return the message and the seconds until it came.

    The process ends 5 s after its timeout, even if torch never returns; torch's C++ logs to stderr are dropped.
    """
    timeout = payload.world.process_group.timeout
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    faulthandler.dump_traceback_later(timeout + 5.0, exit=True, file=2)
    group = debug_group(timeout)
    began, message = time.monotonic(), "no error: the call returned"
    try:
        CASES[payload.case][1](CaseRank(group, context.rank == context.world_size - 1, timeout))
    except (RuntimeError, ValueError) as error:
        message = " ".join(str(error).split())
    return message, time.monotonic() - began


def debug_group(timeout: float) -> Any:
    """Create a group that compares calls, and wait: a rank that ends would break it for one that still connects."""
    dist.set_debug_level(dist.DebugLevel.DETAIL)  # type: ignore[attr-defined]
    group = dist.new_group(timeout=timedelta(seconds=timeout))
    dist.barrier()
    return group
