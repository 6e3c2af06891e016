"""Which checkpoints are saved, and how often."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lockstep.config_error import require

if TYPE_CHECKING:
    from lockstep.plan import Plan


@dataclass(frozen=True)
class Checkpoint:
    """Written after each epoch, and after every `every_n_steps` optimizer steps.

    `monitor`: the metric that best.ckpt is best by; None: validation accuracy, or loss where nothing is classed.
    `mode`: in which direction; None: the smaller is the better, but of accuracy and F1.
    """

    monitor: str | None
    mode: Literal["min", "max"] | None
    every_n_steps: int | None

    def __post_init__(self) -> None:
        key, every = "checkpoint.every_n_steps", self.every_n_steps
        require(every is None or every >= 1, key, every, "it must be 1 or more", f"{key}=100, say, or null")

    def check(self, plan: "Plan") -> None:
        """Refuse a metric that no epoch of the plan measures."""
        if plan.train and self.monitor is not None and not plan.model.lightning:
            reason, measured = "no epoch of this run measures such a thing", plan.measured_by_epochs
            require(
                self.monitor in measured, "checkpoint.monitor", self.monitor, reason, f"one of {', '.join(measured)}"
            )
