"""Which callbacks of Lightning go along: none, one, or several at a time."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lockstep.config_error import require
from lockstep.schemas.target import OneOfSeveral

if TYPE_CHECKING:
    from lockstep.plan import Plan


@dataclass(frozen=True)
class NoCallback:
    """Not one that a plan has: what the name stands for in a configuration."""

    name: Literal["none"]


@dataclass(frozen=True)
class OwnCallback(OneOfSeveral):
    """Any Lightning callback, by its import path."""

    def check(self, plan: "Plan") -> None:
        """Refuse to monitor what a plain net is not measured by. A LightningModule's names are its own."""
        monitor = self.call.get("monitor")
        if plan.train and isinstance(monitor, str) and not plan.model.lightning:
            measured = plan.measured_by_epochs
            why = "no epoch of this run measures such a thing"
            require(monitor in measured, f"{self.key}.monitor", monitor, why, f"one of {', '.join(measured)}")
