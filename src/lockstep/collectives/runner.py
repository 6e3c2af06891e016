"""The tour from its options to its exit status: start the ranks, check what they saw, print and save it."""

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
from lockstep.schemas.run import Backend, InitMethod, Timeout
from lockstep.text_table import terminal_width, width_shown
from lockstep.world import World


@dataclass(frozen=True)
class RankOptions:
    """How many ranks to start on each machine, and how they join; `timeout` is in seconds."""

    devices: int = 4
    backend: Backend = "auto"
    init_method: InitMethod = "auto"
    timeout: Timeout = 30.0


@dataclass(frozen=True)
class TourOptions(RankOptions):
    """The keys of the command."""

    root: int = 0
    bench: bool = False

    def __post_init__(self) -> None:
        require(self.devices >= 1, "devices", self.devices, "it must be 1 or more", "devices=2, say")


def run_tour(options: TourOptions) -> int:
    """Return exit status 1 if some rank does not hold what it must."""
    world = world_of(options)
    last, folder, prints = world.world_size - 1, Path(world.folder), is_rank_zero(rank_from_env())
    require(0 <= options.root <= last, "root", options.root, f"the ranks are 0 to {last}", f"root={last}")
    if prints:
        make_output_dir(folder)
    with external_process_group(world) as external:
        payload = TourPayload(world, options.root, options.bench)
        result: TourResult = start_ranks(payload, "lockstep.collectives.ranks", external)
    checks = check_all(PRIMITIVES, result.observations, world.world_size, options.root)
    failed = [check.primitive for check in checks if check.result == "fail"]
    if prints:
        print(tour_table(checks, terminal_width()), flush=True)
        save_table(folder / "tour.csv", [asdict(check) for check in checks])
        if result.timings:
            show_benchmark(result, folder)
        passed = sum(check.result == "pass" for check in checks)
        names = f" ({', '.join(dict.fromkeys(failed))})" if failed else ""
        print(f"\n{passed} checks passed, {len(failed)} failed{names}\n  {folder}", flush=True)
    return 1 if failed else 0


def show_benchmark(result: TourResult, folder: Path) -> None:
    """Save the times and the fitted lines as two CSV files and a plot, and print the fits."""
    from lockstep.collectives.fit import draw, fit_all, fit_table

    fits = fit_all(result.timings)
    save_table(folder / "bench.csv", [timing.csv_row() for timing in result.timings])
    save_table(folder / "fit.csv", [asdict(fit) for fit in fits])
    draw(result.timings, fits, folder / "bench.png")
    print(f"\n{fit_table(fits, width_shown())}", flush=True)


def world_of(options: RankOptions) -> World:
    """Return the world of the ranks that an outside launcher started, or of `devices` ranks on this machine."""
    devices, process_group = options.devices, ProcessGroup(options.backend, options.init_method, options.timeout)
    require_backend(process_group)
    accelerator = accelerator_of(devices, options.backend)
    context, nodes = rank_from_env(), 1
    if context is not None:
        started = context.local_world_size
        nodes = context.world_size // started
        reason = f"{started} processes were started on this machine from outside"
        require(devices == started, "devices", devices, reason, f"devices={started}, or leave it out")
    folder = str(output_dir("collectives"))
    world = World("tour", "elastic", True, devices, nodes, accelerator, False, 1, process_group, folder)
    check_launchable(world)
    return world


def accelerator_of(devices: int, backend: Backend) -> Literal["cpu", "gpu"]:
    """Return gpu if nccl is asked for, or if no backend is and each rank can have a GPU."""
    if backend in ("gloo", "mpi"):
        return "cpu"
    gpus = gpu_count()
    reason = f"nccl takes a GPU for each rank, and torch sees {gpus or 'none'} on this machine"
    require(backend == "auto" or devices <= gpus, "backend", backend, reason, "backend=gloo")
    return "gpu" if devices <= gpus else "cpu"
