"""Who runs the loop."""

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True)
class Lightning:
    name: Literal["lightning"]
    gradient_sync: ClassVar[Literal["ddp"]] = "ddp"


@dataclass(frozen=True)
class Raw:
    """Plain torch.distributed; or both engines, one after the other, then compared."""

    name: Literal["raw", "both"]
    gradient_sync: Literal["ddp", "all_reduce", "bucket", "ring", "reduce_broadcast"]


Engine = Lightning | Raw

ENGINES = {"lightning": "lockstep.lit", "raw": "lockstep.raw"}
"""The module of each engine, by name: only ranks import it."""
