"""The ranks of a run: how many, how they start, and how they communicate. All that the launcher knows of a run."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from lockstep.config_error import config_error
from lockstep.schemas.process_group import ProcessGroup


@dataclass(frozen=True)
class World:
    """`distributed`: the ranks form a process group. `folder`: the run's, for the logs of ranks above 0.

    `max_restarts`: how often all ranks are restarted after one has failed. `in_process`: the only rank is
    the process that starts it.
    """

    strategy: str
    start: Literal["elastic", "spawn"]
    distributed: bool
    local_world_size: int
    num_nodes: int
    accelerator: Literal["cpu", "gpu"]
    share_device: bool
    threads: int
    process_group: ProcessGroup
    folder: str
    max_restarts: int = 0
    in_process: bool = False

    def __post_init__(self) -> None:
        if self.distributed and self.process_group.backend == "nccl":
            key = "process_group.backend"
            if self.accelerator == "cpu":
                raise config_error(key, "nccl", "it passes GPU tensors only, and accelerator=cpu", f"{key}=gloo")
            if self.share_device:
                raise config_error(key, "nccl", "it takes no two ranks on one GPU", f"{key}=gloo")

    @property
    def world_size(self) -> int:
        """Ranks over all machines."""
        return self.local_world_size * self.num_nodes

    @property
    def backend(self) -> Literal["gloo", "nccl", "mpi"]:
        """By default nccl where each rank has a GPU of its own, else gloo."""
        if self.process_group.backend != "auto":
            return self.process_group.backend
        return "nccl" if self.accelerator == "gpu" and not self.share_device else "gloo"


class Launchable(Protocol):
    """What ranks can run: a plan, or another dataclass of plain values with a world."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def world(self) -> World: ...
