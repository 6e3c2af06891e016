"""The optimizers and schedules that a module configures, in all forms that Lightning takes.

A ReduceLROnPlateau steps by a value that the module logs. Both engines check here which value, and whether it exists.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from lockstep.config_error import config_error


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
    """Return optimizers and schedules from what `configure_optimizers` has returned.

    Raises:
        ValueError: it has none of the forms that Lightning takes.
    """
    if returned is None:
        return [], []
    if isinstance(returned, Optimizer):
        return [returned], []
    if isinstance(returned, Mapping):
        schedules = [_config(returned["lr_scheduler"], returned.get("monitor"))] if "lr_scheduler" in returned else []
        return [returned["optimizer"]], schedules
    if isinstance(returned, list | tuple) and len(returned) == 2 and isinstance(returned[0], list):
        listed = returned[1] if isinstance(returned[1], list) else [returned[1]]
        return [*returned[0]], [_config(schedule, None) for schedule in listed]
    if all(isinstance(each, Mapping) for each in returned):
        pairs = [configured(each) for each in returned]
        return [each for listed, _ in pairs for each in listed], [each for _, listed in pairs for each in listed]
    if all(isinstance(each, Optimizer) for each in returned):
        return [*returned], []
    kind = type(returned).__name__
    raise ValueError(f"configure_optimizers returns a {kind}, and not optimizers with their schedules")


def _config(schedule: Any, monitor: str | None) -> SchedulerConfig:
    given = schedule if isinstance(schedule, Mapping) else {"scheduler": schedule, "monitor": monitor}
    options = {key: value for key, value in given.items() if key in SchedulerConfig.__dataclass_fields__}
    plateau = isinstance(options["scheduler"], ReduceLROnPlateau)
    return SchedulerConfig(**{"reduce_on_plateau": plateau, **options})


def require_monitors(name: str, returned: Any) -> None:
    """Raise if a ReduceLROnPlateau that `configure_optimizers` returns names nothing to monitor.

    Raises:
        ConfigError: names the module.
    """
    if any(schedule.reduce_on_plateau and schedule.monitor is None for schedule in configured(returned)[1]):
        reason = "its ReduceLROnPlateau monitors nothing"
        hint = 'in its configure_optimizers "monitor": NAME beside "scheduler", a NAME that it logs'
        raise config_error("model", name, reason, hint)


def require_logged(name: str, schedules: Iterable[Any], interval: str, index: int, known: Mapping[str, Any]) -> None:
    """Raise if a ReduceLROnPlateau steps now, by a value that nothing has logged.

    Args:
        index: of the epoch, or of the batch within it, from 1.
        known: the values that have been logged.

    Raises:
        ConfigError: names the monitored value and the known ones.
    """
    for schedule in schedules:
        steps_now = schedule.reduce_on_plateau and schedule.interval == interval and index % schedule.frequency == 0
        if steps_now and schedule.strict and str(schedule.monitor) not in known:
            reason = f"its ReduceLROnPlateau monitors {schedule.monitor}, which it does not log"
            raise config_error("model", name, reason, f"one of {', '.join(sorted(known)) or 'what it logs'}")
