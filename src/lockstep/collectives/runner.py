"""The tour from its options to its exit status: start the ranks, check what they saw, print it and save it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from lockstep.collectives.primitives import PRIMITIVES
from lockstep.collectives.ranks import TourPayload, TourResult
from lockstep.collectives.verify import check_all, tour_table
from lockstep.config_error import require
from lockstep.entry_point import make_output_dir, output_dir
from lockstep.files import save_table
from lockstep.launch.accelerator import gpu_count, require_backend
from lockstep.launch.external_launcher import check_launchable, rank_from_env
from lockstep.launch.start import external_process_group, start_ranks
from lockstep.launch.topology import is_rank_zero
from lockstep.schemas import ProcessGroup
from lockstep.schemas.process_group import Backend
from lockstep.text_table import terminal_width, width_shown
from lockstep.world import World

ENGINE = "lockstep.collectives.ranks"


@dataclass(frozen=True)
class RankOptions:
    """How many ranks to start on each machine, and how they join; `timeout` is in seconds."""

    devices: int = 4
    backend: Backend = "auto"
    init_method: str = "auto"
    timeout: float = 30.0


@dataclass(frozen=True)
class TourOptions(RankOptions):
    """The keys of the command."""

    root: int = 0
    bench: bool = False

    def __post_init__(self) -> None:
        require(self.devices >= 1, "devices", self.devices, "it must be 1 or more", "devices=2, say")


def run_tour(options: TourOptions, engine: str = ENGINE) -> int:
    """Exit status 1 if some rank does not hold what it must."""
    world = world_of(options)
    last = world.world_size - 1
    reason = f"there are ranks 0 to {last}" if last else "there is rank 0 alone"
    require(
        0 <= options.root <= last, "root", options.root, reason, f"root={last}" + (", or one below" if last else "")
    )
    folder, prints = Path(world.folder), is_rank_zero(rank_from_env())
    if prints:
        make_output_dir(folder)
    with external_process_group(world):
        result: TourResult = start_ranks(TourPayload(world, options.root, options.bench), engine)
    checks = check_all(PRIMITIVES, result.observations, world.world_size, options.root, world.backend)
    failed = [check.primitive for check in checks if check.result == "fail"]
    if prints:
        print(tour_table(checks, terminal_width()), flush=True)
        save_table(folder / "tour.csv", [asdict(check) for check in checks])
        if result.timings:
            show_benchmark(result, folder)
        passed = sum(check.result == "pass" for check in checks)
        named = f" ({', '.join(dict.fromkeys(failed))})" if failed else ""
        print(f"\n{passed} checks passed, {len(failed)} failed{named}\n  {folder}", flush=True)
    return 1 if failed else 0


def show_benchmark(result: TourResult, folder: Path) -> None:
    """The measured times and the fitted lines: two files and a plot; the fits on the terminal."""
    from lockstep.collectives.fit import draw, fit_all, fit_table

    lines = fit_all(result.timings)
    save_table(folder / "bench.csv", [timing.cells() for timing in result.timings])
    save_table(folder / "fit.csv", [asdict(line) for line in lines])
    draw(result.timings, lines, folder / "bench.png")
    print(f"\n{fit_table(lines, width_shown())}", flush=True)


def world_of(options: RankOptions) -> World:
    """The ranks that were started from outside, or so many on this machine."""
    devices, process_group = options.devices, ProcessGroup(options.backend, options.init_method, options.timeout)
    require_backend(process_group)
    accelerator = accelerator_of(devices, options.backend)
    context, nodes = rank_from_env(), 1
    if context is not None:
        nodes = context.world_size // context.local_world_size
        reason = f"{context.local_world_size} processes were started on this machine from outside"
        hint = f"devices={context.local_world_size}, or leave it out"
        require(devices == context.local_world_size, "devices", devices, reason, hint)
    folder = str(output_dir("collectives"))
    world = World("tour", "elastic", True, devices, nodes, accelerator, False, 1, process_group, folder)
    check_launchable(world)
    return world


def accelerator_of(devices: int, backend: Backend) -> Literal["cpu", "gpu"]:
    """A GPU for each rank, where nccl is asked for, or no backend is and there are enough."""
    if backend in ("gloo", "mpi"):
        return "cpu"
    gpus = gpu_count()
    reason = f"nccl takes a GPU for each rank, and torch sees {gpus or 'none'} on this machine"
    require(backend == "auto" or devices <= gpus, "backend", backend, reason, "backend=gloo")
    return "gpu" if devices <= gpus else "cpu"
