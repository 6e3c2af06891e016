"""The steps of schedules, and the optimizer of a module that has none."""

from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

if TYPE_CHECKING:
    from lockstep.raw.training import Training


class NoOptimizer(Optimizer):
    """Where a module has none: its steps count as steps, and change nothing, as in Lightning."""

    def __init__(self) -> None:
        super().__init__([torch.zeros(1)], {})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """No-op: there are no parameters."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """No-op: there is no state."""

    def step(self, closure: Any = None) -> Any:
        return None if closure is None else closure()


def step_schedules(run: "Training", interval: str, number: int, plateau: bool) -> None:
    """Step the schedules of automatic optimization that are due; `plateau` ones by what they monitor."""
    if run.session.manual or not run.trainer.lr_scheduler_configs:
        return
    index = 1 + (number if interval == "step" else run.trainer.current_epoch)
    for config in run.trainer.lr_scheduler_configs:
        if config.reduce_on_plateau != plateau or config.interval != interval or index % config.frequency:
            continue
        value = run.trainer.callback_metrics.get(str(config.monitor)) if plateau else None
        if not plateau or value is not None:
            if (method := run.hooks.method("lr_scheduler_step")) is not None:
                method(config.scheduler, value)
            else:
                config.scheduler.step(*([value] if plateau else []))
