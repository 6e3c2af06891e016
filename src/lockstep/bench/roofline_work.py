"""What a rank is asked to count of a training step, and to find out about the machine it is on."""

from dataclasses import dataclass

from lockstep.plan import Plan
from lockstep.world import World


@dataclass(frozen=True)
class Step:
    """`matrix` and `copied` are the sizes, in rows and in bytes, by which the machine's own rates are measured."""

    plan: Plan
    matrix: int
    copied: int

    @property
    def world(self) -> World:
        return self.plan.world


@dataclass(frozen=True)
class Work:
    """Of one sample, forward and backward: arithmetic operations, and bytes into and out of every operator."""

    flops: float
    traffic: float


@dataclass(frozen=True)
class Counts:
    """By precision: the work of a sample; the machine's floating-point operations a second; bytes a second copied."""

    work: dict[str, Work]
    peak: dict[str, float]
    copy: float
