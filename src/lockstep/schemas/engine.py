"""The options of the group `engine`: which loop trains."""

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True)
class Lightning:
    """fast_loop: whether `lit/loop.py` trains, where it can; otherwise Lightning's own loop."""

    name: Literal["lightning"]
    fast_loop: bool
    gradient_sync: ClassVar[Literal["ddp"]] = "ddp"


@dataclass(frozen=True)
class Raw:
    """Plain torch.distributed; `both` runs Lightning with its own loop, then this one, and compares them."""

    name: Literal["raw", "both"]
    gradient_sync: Literal["ddp", "all_reduce", "bucket", "ring", "reduce_broadcast"]
    fast_loop: ClassVar[bool] = False


Engine = Lightning | Raw

ENGINES = {"lightning": "lockstep.lit", "raw": "lockstep.raw"}  # the module of each engine. Only ranks import it.
EVERY_RUN = ("lockstep.session.inspection", "lockstep.models", "lockstep.datamodules")
"""What the inspection and the ranks of most runs import, too: the fork server does so once, while Hydra composes."""
