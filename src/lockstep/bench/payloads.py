"""What the bench hands to its ranks, and the modules that they call, named without an import of torch."""

from dataclasses import dataclass

from lockstep.plan import Plan
from lockstep.world import World

BASELINES, COLLECTIVE_COUNTS = "lockstep.bench.baselines", "lockstep.bench.collective_counts"
MONITORING = "lockstep.bench.monitoring"
STRANGERS, STOCK = "lockstep.bench.strangers", "stock"
"""A user's LightningModule, and the name of Lightning's own Trainer as its baseline."""


@dataclass(frozen=True)
class BenchPayload:
    """`subject` is what to run of the plan: the name of a baseline, or the module of an engine."""

    plan: Plan
    subject: str

    @property
    def world(self) -> World:
        return self.plan.world
