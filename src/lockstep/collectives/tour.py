"""What the tour is asked for, and the world of ranks that it takes place in."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from lockstep import launch
from lockstep.config_error import config_error, require
from lockstep.launch.accelerator import gpu_count, require_backend
from lockstep.schemas import ProcessGroup
from lockstep.schemas.process_group import Backend
from lockstep.world import World


@dataclass(frozen=True)
class Ranks:
    """Which ranks to start: so many on each machine, and how they join; `timeout` is in seconds."""

    devices: int = 4
    backend: Backend = "auto"
    init_method: str = "auto"
    timeout: float = 30.0

    @property
    def process_group(self) -> ProcessGroup:
        return ProcessGroup(self.backend, self.init_method, self.timeout)


@dataclass(frozen=True)
class Tour(Ranks):
    """The keys of the command."""

    root: int = 0
    bench: bool = False

    def __post_init__(self) -> None:
        require(self.devices >= 1, "devices", self.devices, "it must be 1 or more", "devices=2, say")


@dataclass(frozen=True)
class Work:
    """What the ranks are started for."""

    tour: Tour
    world: World


def work_of(tour: Tour) -> Work:
    """The tour in its world; raises ConfigError where they do not fit."""
    world = world_of(tour)
    last = world.world_size - 1
    ranks = f"there are ranks 0 to {last}" if last else "there is rank 0 alone"
    require(0 <= tour.root <= last, "root", tour.root, ranks, f"root={last}" + (", or one below" if last else ""))
    return Work(tour, world)


def world_of(ranks: Ranks) -> World:
    """So many ranks on each machine: those that were started from outside, or ranks of this machine."""
    devices, process_group = ranks.devices, ranks.process_group
    require_backend(process_group)
    accelerator = accelerator_of(devices, process_group.backend)
    context, nodes = launch.rank_from_env(), 1
    if context is not None:
        nodes = context.world_size // context.local_world_size
        started = f"{context.local_world_size} processes were started on this machine from outside"
        instead = f"devices={context.local_world_size}, or leave it out"
        require(devices == context.local_world_size, "devices", devices, started, instead)
    world = World("tour", "elastic", True, devices, nodes, accelerator, False, 1, process_group, str(fresh_folder()))
    launch.check_launchable(world)
    return world


def accelerator_of(devices: int, backend: Backend) -> Literal["cpu", "gpu"]:
    """A GPU for each rank, where nccl is wanted, or nothing is and there are enough."""
    if backend in ("gloo", "mpi"):
        return "cpu"
    gpus = gpu_count()
    if backend == "nccl" and devices > gpus:
        why = f"nccl takes a GPU for each rank, and torch sees {gpus or 'none'} on this machine"
        instead = f"devices={gpus}, or backend=gloo" if gpus else "backend=gloo"
        raise config_error("devices", devices, why, instead) if gpus else config_error("backend", backend, why, instead)
    return "gpu" if devices <= gpus else "cpu"


def fresh_folder() -> Path:
    """Where the tour leaves its tables, named by the clock like the folder of a run."""
    return Path("logs", "collectives", f"{datetime.now():%Y-%m-%d_%H-%M-%S-%f}").absolute()
