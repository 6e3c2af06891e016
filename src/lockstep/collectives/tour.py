"""The tour: call every primitive on small tensors on each rank; check and print what the ranks hold.

And wrong calls on purpose, each on new ranks, in a group with torch's debug level DETAIL (for any group:
TORCH_DISTRIBUTED_DEBUG=DETAIL): ranks compare what they are about to call, and name the rank that is missing. It is for
debugging, since it costs messages for each call.
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
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist

from lockstep.collectives.primitives import ALL_BUT_OWN, PRIMITIVES, Numbers, Primitive, tensor_device
from lockstep.config_error import require, shorten
from lockstep.entry_point import make_output_dir, output_dir
from lockstep.launch.accelerator import gpu_count, require_backend
from lockstep.launch.external_launcher import check_launchable, is_rank_zero, rank_from_env
from lockstep.launch.failure import RankFailed
from lockstep.launch.start import external_process_group, start_ranks
from lockstep.launch.topology import RankContext
from lockstep.parallel.messages import all_gather_json
from lockstep.schemas import ProcessGroup
from lockstep.schemas.run import Backend, InitMethod, Timeout
from lockstep.text_table import columns_text, terminal_width
from lockstep.world import World

Observation = tuple[list[float], list[float]]  # what one rank held before and after a primitive


@dataclass(frozen=True)
class RankOptions:
    """How many ranks to start on each machine, and how they join; the defaults are those of `failures`."""

    devices: int = 2
    backend: Backend = "auto"
    init_method: InitMethod = "auto"
    timeout: Timeout = 5.0


@dataclass(frozen=True)
class Options(RankOptions):
    """The keys of the tour."""

    devices: int = 4
    timeout: Timeout = 30.0
    root: int = 0


@dataclass(frozen=True)
class TourPayload:
    """The input of the ranks; `case`: the title of one of CASES in place of the tour."""

    world: World
    root: int = 0
    case: str = ""


def show(options: Options) -> int:
    """Call and check each primitive; return exit status 1 if a check failed."""
    world = world_of(options)
    last, folder, prints = world.world_size - 1, Path(world.folder), is_rank_zero()
    require(0 <= options.root <= last, "root", options.root, f"the ranks are 0 to {last}", f"root={last}")
    if prints:
        make_output_dir(folder)
    with external_process_group(world) as is_launched:
        observations = start_ranks(TourPayload(world, options.root), __name__, is_launched)
    checked = [
        (primitive, ranks, check(primitive, ranks, options.root))
        for primitive, ranks in zip(PRIMITIVES, observations, strict=True)
    ]
    passed, failed = (sum(results.count(word) for _, _, results in checked) for word in ("pass", "fail"))
    if prints:
        names = ", ".join(primitive.name for primitive, _, results in checked if "fail" in results)
        print("\n\n".join(paragraph(*each) for each in checked))
        print(f"\n{passed} checks passed, {failed} failed{f' ({names})' if names else ''}\n  {folder}", flush=True)
    return 1 if failed else 0


def world_of(options: RankOptions) -> World:
    """Return the world of the ranks that an outside launcher started, or of `devices` ranks on this machine."""
    process_group = ProcessGroup(options.backend, options.init_method, options.timeout)
    require_backend(process_group)
    context = rank_from_env()
    devices = context.local_world_size if context else options.devices
    nodes = context.world_size // devices if context else 1
    require(devices * nodes >= 2, "devices", devices, "it takes two ranks or more", "devices=2")
    gpus = 0 if options.backend in ("gloo", "mpi") else gpu_count()
    reason = f"nccl takes a GPU for each rank, and torch sees {gpus or 'none'} on this machine"
    require(options.backend != "nccl" or devices <= gpus, "backend", "nccl", reason, "backend=gloo")
    accelerator: Literal["cpu", "gpu"] = "gpu" if devices <= gpus else "cpu"
    folder = str(output_dir("collectives"))
    world = World("tour", "elastic", True, devices, nodes, accelerator, False, 1, process_group, folder)
    check_launchable(world)
    return world


def run(payload: TourPayload, context: RankContext) -> Any:
    """Run a case or the tour on this rank; return the outcome, or what all ranks observed of each primitive."""
    if payload.case:
        return run_case(payload, context)
    return [all_gather_json(observe(primitive, payload.root)) for primitive in PRIMITIVES]


def observe(primitive: Primitive, root: int) -> Observation:
    """Make one call on this rank; the full tensor, or each share of it, holds two numbers.

    Each number is another: 10 and -11 on rank 0, 20 and -21 on rank 1.
    """
    count = 2 * dist.get_world_size() if primitive.cost == ALL_BUT_OWN else 2
    sizes = {"full": count, "share": count // dist.get_world_size()}
    input = torch.zeros(sizes[primitive.input], device=tensor_device())
    output = input if primitive.output == "none" else torch.zeros(sizes[primitive.output], device=input.device)
    numbers = [(10 * dist.get_rank() + 10 + index) * (-1) ** index for index in range(len(input))]
    input += torch.tensor(numbers, device=input.device)
    before: list[float] = input.tolist()
    primitive.call(input, output, root)
    return before, output.tolist()


def check(primitive: Primitive, observations: Sequence[Observation], root: int) -> list[str]:
    """Return the result of each rank: pass, fail, or – if the rank may hold anything."""
    expected = primitive.expected([before for before, _ in observations], root)
    return [compare(after, numbers) for (_, after), numbers in zip(observations, expected, strict=True)]


def compare(after: Sequence[float], expected: Numbers | None) -> str:
    if expected is None:
        return "–"
    # float32 against float64; a mean may be a product with 1/W
    same = len(after) == len(expected) and np.allclose(after, expected, rtol=1e-6, atol=0)
    return "pass" if same else "fail"


def paragraph(primitive: Primitive, observations: Sequence[Observation], results: Sequence[str]) -> str:
    """Format the name of a primitive with what it does and costs, then a line for each rank."""
    cells = []
    for rank, (numbers, result) in enumerate(zip(observations, results, strict=True)):
        before, after = (" ".join(f"{number:g}" for number in each) for each in numbers)
        cells.append([f"rank {rank}", before, "→", after, result])
    ranks = columns_text(("", "before", "", "after", ""), cells, left=len(cells[0]))
    heading = f"{primitive.name}: {primitive.does}; the busiest rank moves {primitive.cost} bytes."
    return f"{textwrap.fill(heading, terminal_width())}\n{textwrap.indent(ranks, '  ')}"


def ones(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(count, dtype=dtype, device=tensor_device())


CASES: dict[str, tuple[str, Callable[[Any, bool, float], object]]] = {
    "all-reduce of different shapes": (
        r"\[4\].*\[3\]",
        lambda group, last, _timeout: dist.all_reduce(ones(3 if last else 4), group=group),
    ),
    "all-reduce of different dtypes": (
        "Float.*Double",
        lambda group, last, _timeout: dist.all_reduce(ones(4, torch.float64 if last else torch.float32), group=group),
    ),
    "different collectives": (
        "ALLREDUCE.*BROADCAST",
        lambda group, last, _timeout: (
            dist.broadcast(ones(4), 0, group=group) if last else dist.all_reduce(ones(4), group=group)
        ),
    ),
    "receive of another size than was sent (gloo crashes)": (
        "rank [1-9].* failed: it was ended by",
        lambda _group, last, _timeout: dist.recv(ones(3)) if last else dist.send(ones(4), dist.get_world_size() - 1),
    ),
    "the last rank does not call the all-reduce": (
        "monitoredBarrier",
        lambda group, last, timeout: time.sleep(timeout + 1) if last else dist.all_reduce(ones(4), group=group),
    ),
}
"""By title: what the message of rank 0 matches if the failure is caught, and the call of a rank (the last or not)."""


def show_failures(options: RankOptions, titles: Sequence[str] = tuple(CASES)) -> int:
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


def run_case(payload: TourPayload, context: RankContext) -> tuple[str, float]:
    """Make the call of a case on this rank; return the message and the seconds until it came.

    The process ends 5 s after its timeout, even if torch never returns; torch's C++ logs to stderr are dropped.
    """
    timeout = payload.world.process_group.timeout
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    faulthandler.dump_traceback_later(timeout + 5.0, exit=True, file=2)
    group = debug_group(timeout)
    began, message = time.monotonic(), "no error: the call returned"
    try:
        CASES[payload.case][1](group, context.rank == context.world_size - 1, timeout)
    except (RuntimeError, ValueError) as error:
        message = " ".join(str(error).split())
    return message, time.monotonic() - began


def debug_group(timeout: float) -> Any:
    """Create a group that compares calls, and wait: a rank that ends would break it for one that still connects."""
    dist.set_debug_level(dist.DebugLevel.DETAIL)  # type: ignore[attr-defined]
    group = dist.new_group(timeout=timedelta(seconds=timeout))
    dist.barrier()
    return group
