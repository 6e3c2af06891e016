"""Where the curves go."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lockstep.config_error import config_error
from lockstep.files import is_utf8

if TYPE_CHECKING:
    from lockstep.plan import Plan


@dataclass(frozen=True)
class Logger:
    name: Literal["tensorboard", "csv", "none"]

    def check(self, plan: "Plan") -> None:
        """Refuse a folder that it cannot write to."""
        if self.name == "tensorboard" and not is_utf8(plan.run_dir):
            why = f"TensorBoard writes to no folder whose name is not UTF-8, and the run's is {plan.run_dir}"
            raise config_error("logger", "tensorboard", why, "logger=csv or logger=none, or another hydra.run.dir")
