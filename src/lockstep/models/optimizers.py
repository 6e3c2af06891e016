"""What `configure_optimizers` of the modules returns."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from lightning.pytorch import LightningModule
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau


def configure(
    module: LightningModule,
    optimizer: Callable[..., Optimizer],
    scheduler: Callable[..., Any] | None,
    interval: str | None = None,
    monitor: str | None = None,
) -> Any:
    """Return an optimizer of the module's parameters and, if there is one, the schedule of its rate.

    Args:
        interval: step or epoch, after which the rate changes; None: each step for a schedule that takes `total_steps`,
            else each epoch.
        monitor: the logged value that a ReduceLROnPlateau looks at.
    """
    created = optimizer([parameter for parameter in module.parameters() if parameter.requires_grad])
    if scheduler is None:
        return created
    names = inspect.signature(scheduler).parameters
    given = scheduler.keywords if isinstance(scheduler, partial) else {}
    takes_total = "total_steps" in names and given.get("total_steps") is None and "epochs" not in given
    arguments: dict[str, Any] = {"total_steps": module.trainer.estimated_stepping_batches} if takes_total else {}
    if "schedulers" in given:  # those within a SequentialLR or a ChainedScheduler
        arguments["schedulers"] = [each(created) for each in given["schedulers"]]
    kind = scheduler.func if isinstance(scheduler, partial) else scheduler
    if isinstance(kind, type) and issubclass(kind, ReduceLROnPlateau) and "mode" not in given:
        arguments["mode"] = "max" if str(monitor).endswith(("acc", "f1")) else "min"
    config = {"scheduler": scheduler(created, **arguments), "interval": interval or ("step" if takes_total else "epoch")}
    return {"optimizer": created, "lr_scheduler": config | ({"monitor": monitor} if monitor else {})}
