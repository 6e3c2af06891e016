"""The optimizers and schedules that a module configures, and what a ReduceLROnPlateau among them monitors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from lockstep.config_error import config_error, require
from lockstep.plan import Plan


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


def configured(returned: Any) -> tuple[list[Optimizer], list[SchedulerConfig]]:
    """Return optimizers and schedules from a return value of `configure_optimizers`, in any form that Lightning takes.

    Raises:
        ValueError: it has none of these forms.
    """
    if returned is None:
        return [], []
    if isinstance(returned, list | tuple) and len(returned) == 2 and isinstance(returned[0], list):
        schedules = returned[1] if isinstance(returned[1], list) else [returned[1]]
        return [*returned[0]], [_config(schedule, None) for schedule in schedules]
    entries = [*returned] if isinstance(returned, list | tuple) else [returned]
    entries = [{"optimizer": entry} if isinstance(entry, Optimizer) else entry for entry in entries]
    if not all(isinstance(entry, Mapping) for entry in entries):
        kind = type(returned).__name__
        raise ValueError(f"configure_optimizers returns a {kind}, and not optimizers with their schedules")
    with_schedule = [entry for entry in entries if "lr_scheduler" in entry]
    schedules = [_config(entry["lr_scheduler"], entry.get("monitor")) for entry in with_schedule]
    return [entry["optimizer"] for entry in entries], schedules


def _config(schedule: Any, monitor: str | None) -> SchedulerConfig:
    entry = schedule if isinstance(schedule, Mapping) else {"scheduler": schedule, "monitor": monitor}
    options = {key: value for key, value in entry.items() if key in SchedulerConfig.__dataclass_fields__}
    return SchedulerConfig(**{"reduce_on_plateau": isinstance(options["scheduler"], ReduceLROnPlateau), **options})


def require_plateaus(plan: Plan, trainer: Any) -> set[str]:
    """Check the ReduceLROnPlateaus of a trainer; return the names of the values that they monitor.

    Raises:
        ConfigError: one monitors nothing, or steps after a checkpoint that would lack its step.
    """
    plateaus = [schedule for schedule in trainer.lr_scheduler_configs if schedule.reduce_on_plateau]
    if trainer.lightning_module.automatic_optimization and any(schedule.monitor is None for schedule in plateaus):
        hint = 'in its configure_optimizers "monitor": NAME beside "scheduler", a NAME that it logs'
        raise config_error("model", plan.model.name, "its ReduceLROnPlateau monitors nothing", hint)
    steps_by_batch = any(schedule.interval == "step" for schedule in plateaus)
    reason = "ReduceLROnPlateau steps behind each batch, and a checkpoint before that would lack its last step"
    every, interval = plan.checkpoint.every_n_steps, plan.trainer.val_check_interval
    require(
        every is None or not steps_by_batch, "checkpoint.every_n_steps", every, reason, "checkpoint.every_n_steps=null"
    )
    require(
        interval == 1.0 or not steps_by_batch,
        "trainer.val_check_interval",
        interval,
        reason,
        "trainer.val_check_interval=1.0",
    )
    return {str(schedule.monitor) for schedule in plateaus}


def require_logged(plan: Plan, trainer: Any, interval: str, index: int) -> None:
    """Raise if a ReduceLROnPlateau steps now by a value that was not logged.

    Args:
        index: of the epoch, or of the batch within it, from 1.

    Raises:
        ConfigError: names the monitored value and the logged ones.
    """
    logged = trainer.callback_metrics
    for schedule in trainer.lr_scheduler_configs:
        steps_now = schedule.reduce_on_plateau and schedule.interval == interval and index % schedule.frequency == 0
        if steps_now and schedule.strict and str(schedule.monitor) not in logged:
            reason = f"its ReduceLROnPlateau monitors {schedule.monitor}, which it does not log"
            raise config_error(
                "model", plan.model.name, reason, f"one of {', '.join(sorted(logged)) or 'what it logs'}"
            )
