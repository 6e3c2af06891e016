"""One process, one device."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.config_error import require
from lockstep.strategies.strategy import Strategy

if TYPE_CHECKING:
    from lockstep.plan import Plan


@dataclass(frozen=True)
class Single(Strategy):
    name: Literal["single"]
    in_process: bool | None = None
    batch_key: ClassVar[tuple[str, ...]] = ("undivided", "micro_batches")

    def check(self, plan: "Plan") -> None:
        reason = f"strategy={self.name} trains on one device"
        require(plan.devices == 1, "devices", plan.devices, reason, "devices=1, or strategy=ddp")
        super().check(plan)
