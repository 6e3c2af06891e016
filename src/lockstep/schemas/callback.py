"""Which callbacks of Lightning go along: none, one, or several at a time."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lockstep.config_error import config_error
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
        """Refuse it where no LightningModule calls its hooks."""
        if not plan.model.lightning:
            why = "callbacks go along with a LightningModule, and this is a plain net"
            raise config_error("callbacks", self.name, why, "callbacks=none, or model=… of a LightningModule")
