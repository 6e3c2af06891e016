"""The tour: call every primitive on small tensors on each rank; check and print what the ranks hold."""

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.distributed as dist

from lockstep.base.config_error import require
from lockstep.base.messages import all_gather_json
from lockstep.base.text_table import columns_text
from lockstep.collectives.primitives import ALL_BUT_OWN, PRIMITIVES, Numbers, Primitive
from lockstep.command.entry_point import make_output_dir, output_dir
from lockstep.launch.external_launcher import check_launchable, is_rank_zero, rank_from_env
from lockstep.launch.machine import gpu_count
from lockstep.launch.start import external_process_group, start_ranks
from lockstep.launch.topology import RankContext
from lockstep.plan.schemas import ProcessGroup
from lockstep.plan.schemas.run import Backend, Timeout
from lockstep.plan.world import World

Observation = tuple[list[float], list[float]]  # what one rank held before and after a primitive


@dataclass(frozen=True)
class Options:
    """The keys of the tour: how many ranks to start on each machine, how they join, and the root."""

    devices: int = 4
    backend: Backend = "auto"
    timeout: Timeout = 30.0
    root: int = 0


@dataclass(frozen=True)
class TourPayload:
    """The input of the ranks."""

    world: World
    root: int


def show(options: Options) -> int:
    """Call and check each primitive; return exit status 1 if a check failed."""
    world = world_of(options)
    last, folder, prints = world.world_size - 1, Path(world.folder), is_rank_zero()
    require(0 <= options.root <= last, "root", options.root, f"the ranks are 0 to {last}", f"root={last}")
    if prints:
        make_output_dir(folder)
    with external_process_group(world):
        observations = start_ranks(TourPayload(world, options.root), __name__)
    observed = [*zip(PRIMITIVES, observations, strict=True)]
    results = {primitive.name: check(primitive, ranks, options.root) for primitive, ranks in observed}
    passed, failed = (sum(ranks.count(word) for ranks in results.values()) for word in ("pass", "fail"))
    if prints:
        names = ", ".join(name for name, ranks in results.items() if "fail" in ranks)
        print("\n\n".join(paragraph(primitive, ranks, results[primitive.name]) for primitive, ranks in observed))
        print(f"\n{passed} checks passed, {failed} failed{f' ({names})' if names else ''}\n  {folder}", flush=True)
    return 1 if failed else 0


def world_of(options: Options) -> World:
    """Return the world of the ranks that an outside launcher started, or of `devices` ranks on this machine."""
    process_group = ProcessGroup(options.backend, options.timeout)
    context = rank_from_env()
    devices = context.local_world_size if context else options.devices
    nodes = context.world_size // devices if context else 1
    require(devices * nodes >= 2, "devices", devices, "it takes two ranks or more", "devices=2")
    gpus = 0 if options.backend == "gloo" else gpu_count()
    reason = f"nccl takes a GPU for each rank, and torch sees {gpus or 'none'} on this machine"
    require(options.backend != "nccl" or devices <= gpus, "backend", "nccl", reason, "backend=gloo")
    accelerator: Literal["cpu", "gpu"] = "gpu" if devices <= gpus else "cpu"
    folder = str(output_dir("collectives"))
    world = World("tour", True, devices, nodes, accelerator, False, 1, process_group, folder)
    check_launchable(world)
    return world


def run(payload: TourPayload, _: RankContext) -> list[list[Observation]]:
    """Return on every rank what all ranks observed of each primitive."""
    return [all_gather_json(observe(primitive, payload.root)) for primitive in PRIMITIVES]


def observe(primitive: Primitive, root: int) -> Observation:
    """Make one call on this rank; the full tensor, or each share of it, holds two numbers.

    Each number is another: 10 and -11 on rank 0, 20 and -21 on rank 1.
    """
    rank, world, on_gpu = dist.get_rank(), dist.get_world_size(), dist.get_backend() == "nccl"  # it takes no others
    count = 2 * world if primitive.cost == ALL_BUT_OWN else 2
    sizes = {"full": count, "share": count // world}
    numbers = [(10 * rank + 10.0 + index) * (-1) ** index for index in range(sizes[primitive.input])]
    input = torch.tensor(numbers, device=torch.device("cuda", torch.cuda.current_device()) if on_gpu else "cpu")
    output = input if primitive.output == "none" else input.new_zeros(sizes[primitive.output])
    primitive.call(input, output, root)
    return numbers, output.tolist()


def check(primitive: Primitive, observations: Sequence[Observation], root: int) -> list[str]:
    """Return the result of each rank: pass, fail, or – if the rank may hold anything."""
    expected = primitive.expected(np.array([before for before, _ in observations]), root)
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
    return f"{textwrap.fill(heading, shutil.get_terminal_size((120, 24)).columns)}\n{textwrap.indent(ranks, '  ')}"
