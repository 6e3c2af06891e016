"""One process, one device."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.base.constraints import Rules
from lockstep.strategies.strategy import Strategy

if TYPE_CHECKING:
    from lockstep.plan.plan import Plan


@dataclass(frozen=True)
class Single(Strategy):
    name: Literal["single"]
    in_process: bool | None = None
    one_device: ClassVar[bool] = True
    batch_key: ClassVar[tuple[str, ...]] = ("undivided", "micro_batches")

    def rules(self, plan: "Plan") -> Rules:
        yield plan.devices == 1, "devices", "strategy=single trains on one device", "devices=1, or strategy=ddp"
        yield from super().rules(plan)
