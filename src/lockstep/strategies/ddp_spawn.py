"""The same as ddp, but torch.multiprocessing starts the ranks."""

from dataclasses import dataclass
from typing import Literal

from lockstep.strategies.ddp import Replicated


@dataclass(frozen=True)
class DDPSpawn(Replicated):
    name: Literal["ddp_spawn"]
    share_device: bool
    find_unused_parameters: bool = False
