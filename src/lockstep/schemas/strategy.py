"""How processes start × how the net is wrapped; the world comes from `devices` and `num_nodes`.

Where all is one process, it may be that of the command (`in_process`; None: where somebody sits at a terminal).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from lockstep.config_error import require
from lockstep.schemas.bounds import not_negative


@dataclass(frozen=True)
class Single:
    """One process, one device."""

    name: Literal["single"]
    in_process: bool | None = None
    start: ClassVar[Literal["spawn"]] = "spawn"
    wrap: ClassVar[Literal["none"]] = "none"
    max_restarts: ClassVar[int] = 0
    share_device: ClassVar[bool] = False
    micro_batches: ClassVar[int] = 1


@dataclass(frozen=True)
class DDPSpawn:
    """A process a device. `share_device` puts several on each GPU in turn, where there are fewer GPUs."""

    name: Literal["ddp_spawn"]
    share_device: bool
    start: ClassVar[Literal["elastic", "spawn"]] = "spawn"
    wrap: ClassVar[Literal["ddp"]] = "ddp"
    in_process: ClassVar[bool] = False
    micro_batches: ClassVar[int] = 1
    max_restarts: ClassVar[int] = 0


@dataclass(frozen=True)
class DDP:
    """The same under torch's elastic agent, which starts all ranks anew after a failure, `max_restarts` times."""

    name: Literal["ddp"]
    share_device: bool
    max_restarts: int
    start: ClassVar[Literal["elastic", "spawn"]] = "elastic"
    wrap: ClassVar[Literal["ddp"]] = "ddp"
    in_process: ClassVar[bool] = False
    micro_batches: ClassVar[int] = 1

    def __post_init__(self) -> None:
        not_negative("strategy.max_restarts", self.max_restarts)


@dataclass(frozen=True)
class DP:
    """One process, a replica of the net on every device."""

    name: Literal["dp"]
    in_process: bool | None = None
    start: ClassVar[Literal["spawn"]] = "spawn"
    wrap: ClassVar[Literal["dp"]] = "dp"
    max_restarts: ClassVar[int] = 0
    share_device: ClassVar[bool] = False
    micro_batches: ClassVar[int] = 1


@dataclass(frozen=True)
class ModelParallel:
    """One process, the net's stages on the devices in turn; a batch goes through them in so many micro-batches."""

    name: Literal["model_parallel"]
    micro_batches: int
    in_process: bool | None = None
    start: ClassVar[Literal["spawn"]] = "spawn"
    wrap: ClassVar[Literal["stages"]] = "stages"
    max_restarts: ClassVar[int] = 0
    share_device: ClassVar[bool] = False

    def __post_init__(self) -> None:
        key, value = "strategy.micro_batches", self.micro_batches
        require(value >= 1, key, value, "it must be 1 or more", f"{key}=1 for the whole batch at once")


Strategy = Single | DDP | DDPSpawn | DP | ModelParallel
