"""The ranks of a run: how many, how they start, and how they communicate. All that the launcher knows of a run."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from lockstep.plan.schemas.run import ProcessGroup


@dataclass(frozen=True)
class World:
    """The ranks of a run, whose folder has the logs of ranks above 0. What a strategy decides is explained there."""

    strategy: str
    distributed: bool
    local_world_size: int
    num_nodes: int
    accelerator: Literal["cpu", "gpu"]
    share_device: bool
    threads: int
    process_group: ProcessGroup
    folder: str
    in_process: bool = False

    @property
    def world_size(self) -> int:
        return self.local_world_size * self.num_nodes

    @property
    def backend(self) -> Literal["gloo", "nccl"]:
        """Return the backend; `auto` is nccl if each rank has a GPU of its own, otherwise gloo."""
        if self.process_group.backend != "auto":
            return self.process_group.backend
        return "nccl" if self.accelerator == "gpu" and not self.share_device else "gloo"


class Launchable(Protocol):
    """Work for ranks: a plan, or another dataclass of plain values with a world."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def world(self) -> World: ...
