"""Optimizers and schedules, in all forms in which a module configures them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

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

    def zero_grad(self, set_to_none: bool = True) -> None:
        """No-op: there are no gradients."""

    def step(self, closure: Any = None) -> Any:
        return None if closure is None else closure()


@dataclass
class SchedulerConfig:
    """A schedule and when it steps, by Lightning's names."""

    scheduler: Any
    name: str | None = None
    interval: str = "epoch"
    frequency: int = 1
    reduce_on_plateau: bool = False
    monitor: str | None = None
    strict: bool = True


def configured(made: Any) -> tuple[list[Optimizer], list[SchedulerConfig]]:
    """Return optimizers and schedules from what `configure_optimizers` has returned, in all forms Lightning takes.

    Raises:
        ValueError: it is none of them.
    """
    if made is None:
        return [NoOptimizer()], []
    if isinstance(made, Optimizer):
        return [made], []
    if isinstance(made, Mapping):
        schedules = [_config(made["lr_scheduler"], made.get("monitor"))] if "lr_scheduler" in made else []
        return [made["optimizer"]], schedules
    if isinstance(made, list | tuple) and len(made) == 2 and isinstance(made[0], list):
        listed = made[1] if isinstance(made[1], list) else [made[1]]
        return [*made[0]], [_config(own, None) for own in listed]
    if all(isinstance(own, Mapping) for own in made):
        parts = [configured(own) for own in made]
        return [own for found, _ in parts for own in found], [own for _, found in parts for own in found]
    if all(isinstance(own, Optimizer) for own in made):
        return [*made], []
    raise ValueError(f"configure_optimizers returns a {type(made).__name__}, and not optimizers with their schedules")


def _config(own: Any, monitor: str | None) -> SchedulerConfig:
    known = SchedulerConfig.__dataclass_fields__
    given = own if isinstance(own, Mapping) else {"scheduler": own}
    options = {key: value for key, value in given.items() if key in known}
    plateau = isinstance(options["scheduler"], ReduceLROnPlateau)
    return SchedulerConfig(**{"reduce_on_plateau": plateau, "monitor": monitor, **options})


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
