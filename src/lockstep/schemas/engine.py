"""The options of the group `engine`: which loop trains."""

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True)
class Lightning:
    name: Literal["lightning"]
    gradient_sync: ClassVar[Literal["ddp"]] = "ddp"


@dataclass(frozen=True)
class Raw:
    """Plain torch.distributed; `both` runs both engines, one after the other, and compares them."""

    name: Literal["raw", "both"]
    gradient_sync: Literal["ddp", "all_reduce", "bucket", "ring", "reduce_broadcast"]


Engine = Lightning | Raw

ENGINES = {"lightning": "lockstep.lit", "raw": "lockstep.raw"}  # the module of each engine. Only ranks import it.
