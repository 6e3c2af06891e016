"""One process, one device."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lockstep.config_error import config_error
from lockstep.strategies.strategy import Strategy

if TYPE_CHECKING:
    from lockstep.plan import Plan


@dataclass(frozen=True)
class Single(Strategy):
    name: Literal["single"]
    in_process: bool | None = None

    def check(self, plan: "Plan") -> None:
        if plan.devices > 1:
            reason = f"strategy={self.name} trains on one device"
            raise config_error("devices", plan.devices, reason, "devices=1, or strategy=ddp")
        super().check(plan)

    @classmethod
    def batch_layout(cls, run_metadata: Mapping[str, Any]) -> tuple[object, ...]:
        return "undivided", run_metadata["micro_batches"]
