"""The optimizers and schedules that a module configures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau


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
    """Return optimizers and schedules from what `configure_optimizers` returns, in any form that Lightning takes."""
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
