"""What a run is started for whose calls to other ranks are counted, and what comes of it."""

from dataclasses import dataclass

from lockstep.plan import Plan
from lockstep.world import World


@dataclass(frozen=True)
class Counted:
    """`engine` is the module that runs the plan."""

    plan: Plan
    engine: str

    @property
    def world(self) -> World:
        return self.plan.world


@dataclass(frozen=True)
class Calls:
    """All-reduces, other collectives, and the buckets in which DistributedDataParallel keeps the gradients."""

    sums: int
    others: int
    buckets: int
