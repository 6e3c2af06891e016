"""The optimizer and the learning-rate schedule of a module."""

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from lockstep.base.config_error import ConfigError, require

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule


def configure(
    module: "LightningModule",
    optimizer: Callable[..., Optimizer],
    scheduler: Callable[..., Any] | None,
    interval: str | None,
    monitor: str,
) -> Any:
    """Return an optimizer of the module's parameters and, if there is one, the schedule of its learning rate.

    Args:
        interval: step or epoch, after which the rate changes; None: each step for a schedule that takes `total_steps`,
            else each epoch. A missing `total_steps` is the length of the run.
        monitor: the logged value that a ReduceLROnPlateau looks at, after each validation if it is one of these.
    """
    fits, hint = interval in (None, "step", "epoch"), "one of step, epoch"
    require(fits, "model.scheduler_interval", interval, "it is not one of the possible values", hint)
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not parameters:
        raise ConfigError(f"model.net: {type(module.net).__name__} has no parameter to train; write another net.")
    created = optimizer(parameters)
    if scheduler is None:
        return created
    names = inspect.signature(scheduler).parameters
    kind, given = (scheduler.func, scheduler.keywords) if isinstance(scheduler, partial) else (scheduler, {})
    arguments: dict[str, Any] = {}
    if "total_steps" in names and given.get("total_steps") is None and given.get("epochs") is None:
        arguments["total_steps"] = module.trainer.estimated_stepping_batches
    is_plateau = isinstance(kind, type) and issubclass(kind, ReduceLROnPlateau)
    if is_plateau and "mode" not in given:
        arguments["mode"] = "max" if str(monitor).endswith(("acc", "f1", "r2", "auroc")) else "min"
    interval = interval or ("step" if "total_steps" in names else "epoch")
    config = {"scheduler": _create(scheduler, created, arguments), "interval": interval, "monitor": monitor}
    if is_plateau and interval == "epoch" and str(monitor).startswith("val"):
        config["frequency"] = module.trainer.check_val_every_n_epoch or 1  # there is no value in the epochs between
    return {"optimizer": created, "lr_scheduler": config}


def _create(scheduler: Callable[..., Any], optimizer: Optimizer, arguments: dict[str, Any]) -> Any:
    """Create a schedule and, before it, the partials in the `schedulers` of a SequentialLR or a ChainedScheduler."""
    given = scheduler.keywords if isinstance(scheduler, partial) else {}
    if "schedulers" not in given:
        return scheduler(optimizer, **arguments)
    children = [_create(each, optimizer, {}) for each in given["schedulers"]]
    return scheduler(optimizer=optimizer, schedulers=children, **arguments)  # a ChainedScheduler takes it second


def adamw_groups(params: Iterable[Tensor], lr: float = 1e-3, weight_decay: float = 0.01) -> AdamW:
    """Return AdamW without weight decay for biases and norm layers.

    Those are the parameters of one dimension: a shift or a scale has no excess that decay should take away.
    """
    parameters = [parameter for parameter in params if parameter.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [parameter for parameter in parameters if parameter.dim() > 1]},
        {"params": [parameter for parameter in parameters if parameter.dim() <= 1], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=lr, weight_decay=weight_decay)
