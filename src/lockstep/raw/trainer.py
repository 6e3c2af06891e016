"""What a LightningModule and callbacks see as `trainer` where no Trainer runs: its public names alone."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.optimizers import needs_no_closure
from lockstep.plan import Plan
from lockstep.precision import MIXED, default_dtype, dtype_of
from lockstep.session.session import Session
from lockstep.step_plan import batch_count

TRAINER_OPTIONS = (
    *("limit_train_batches", "limit_val_batches", "limit_test_batches", "fast_dev_run", "num_sanity_val_steps"),
    *("val_check_interval", "check_val_every_n_epoch", "max_steps", "barebones"),
)
PLAN_OPTIONS = ("max_epochs", "gradient_clip_val", "log_every_n_steps", "precision", "num_nodes", "ckpt_path")
RANK_OPTIONS = ("world_size", "local_rank")
"""Attributes of a Trainer that are copied from the plan's trainer options, the plan and the rank's context."""


class Precision:
    """The dtype in which a module computes: float32, float64, or mixed.

    `scale` multiplies a loss by the current scale for float16; None for other dtypes.
    """

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self.dtype, self.mixed, self.device = dtype_of(plan), MIXED.get(plan.precision), device.type
        self.scaler = torch.amp.GradScaler(self.device, enabled=plan.precision == "16-mixed")
        self.scale: Callable[[Tensor], Tensor] | None = self.scaler.scale if self.scaler.is_enabled() else None

    def forward_context(self) -> AbstractContextManager[None]:
        """Return a context for forward and loss, not for backward. A cache of cast weights would serve one forward."""
        if self.mixed is not None:
            return torch.autocast(self.device, self.mixed, cache_enabled=False)
        return nullcontext() if self.dtype == torch.float32 else default_dtype(self.dtype)

    def unscale(self, optimizer: Optimizer) -> None:
        """Divide the gradients by the scale, before they are measured and clipped."""
        if self.scale is not None:
            self.scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer, closure: Callable[[], Any]) -> None:
        """Step by the gradients that the closure computes; the scaler skips a step where float16 overflowed.

        A step without a loss is left out, too, as by Lightning's scaler.
        """
        if self.scale is not None:
            if closure() is not None:
                self.scaler.step(optimizer)
                self.scaler.update()
        elif needs_no_closure(optimizer):
            closure()
            optimizer.step()
        else:
            optimizer.step(closure)

    def clip_gradients(self, optimizer: Optimizer, limit: float, algorithm: str) -> None:
        """Clip the gradients of an optimizer by norm or by value, if there is a limit."""
        clip = nn.utils.clip_grad_value_ if algorithm == "value" else nn.utils.clip_grad_norm_
        if limit > 0:
            clip([parameter for group in optimizer.param_groups for parameter in group["params"]], limit)


class RawTrainer:
    """A stand-in for `lightning.Trainer`, with the public attributes that a module or a callback may read."""

    training = validating = testing = sanity_checking = False
    should_stop = is_last_batch = False
    checkpoint_callback = profiler = None
    global_step = 0
    train_dataloader: Any = None
    val_dataloaders: Any = None
    test_dataloaders: Any = None

    def __init__(self, session: Session, loggers: list[Any]) -> None:
        plan, context, source = session.plan, session.context, session.data.source
        self.session, self.loggers, self.logger = session, loggers, next(iter(loggers), None)
        self.lightning_module = self.model = session.module
        self.datamodule = source.data_module
        self.callbacks: list[Any] = []
        self.optimizers: list[Optimizer] = []
        self.lr_scheduler_configs: list[Any] = []
        self.callback_metrics: dict[str, Tensor] = {}
        self.logged_metrics: dict[str, Tensor] = {}
        self.progress_bar_metrics: dict[str, float] = {}
        for options, names in ((plan.trainer, TRAINER_OPTIONS), (plan, PLAN_OPTIONS), (context, RANK_OPTIONS)):
            vars(self).update({name: getattr(options, name) for name in names})
        self.current_epoch = session.progress.position.epochs
        self.accumulate_grad_batches = plan.accumulate_grad_batches
        clips = plan.gradient_clip_val is not None
        self.gradient_clip_algorithm = plan.trainer.gradient_clip_algorithm if clips else None
        self.global_rank, self.is_global_zero, self.num_devices = context.rank, context.rank == 0, plan.devices
        self.num_training_batches = plan.steps.epoch_batches or float("inf")
        self.node_rank = (context.rank - context.local_rank) // context.local_world_size
        self.default_root_dir = self.log_dir = plan.run_dir
        self.state = SimpleNamespace(fn="fit" if plan.train else "test", stage=None, status="running")
        self.precision_plugin = Precision(plan, session.device)

    def __getattr__(self, name: str) -> Any:
        """Raise an AttributeError that names the engine which has the attribute."""
        raise AttributeError(f"engine=raw has no trainer.{name}; write engine=lightning for a module that needs it")

    def __deepcopy__(self, _: object) -> "RawTrainer":
        """Return the same object: a copy of the module has this trainer."""
        return self

    @cached_property
    def strategy(self) -> Any:
        """A strategy of Lightning, for its collectives (`all_gather`, `reduce`, …); it wraps no module."""
        strategy: Any = self.session.plan.strategy.lightning(self.session.plan)
        strategy.parallel_devices = [self.session.device] * self.session.context.local_world_size
        return strategy

    @property
    def estimated_stepping_batches(self) -> float:
        """Return the optimizer steps of the run, by the current accumulation; `max_steps` if unknown."""
        plan, max_steps = self.session.plan, self.max_steps
        steps = batch_count(plan.steps.epoch_batches, self.accumulate_grad_batches) * plan.max_epochs
        return max_steps if steps == 0 else steps if max_steps == -1 else min(steps, max_steps)

    def print(self, *values: Any, **options: Any) -> None:
        if self.is_global_zero:
            print(*values, **options)

    def add_callbacks(self, callbacks: list[Any]) -> None:
        """Add the plan's callbacks, then the module's, which replace those of the same type."""
        module = self.lightning_module
        configured = module.configure_callbacks()
        module_callbacks = configured if isinstance(configured, list | tuple) else [configured]
        replaced = {type(callback) for callback in module_callbacks}
        self.callbacks = [*(callback for callback in callbacks if type(callback) not in replaced), *module_callbacks]
        if self.callbacks:
            from lockstep.private_api import lightning as private  # imports Lightning, as the callbacks have

            vars(self).update(private.names_read(lambda: self.session.progress.position.steps, self))
        for callback in self.callbacks:
            callback.log, callback.log_dict = module.log, module.log_dict

    def reset_metrics(self) -> None:
        for metrics in (self.callback_metrics, self.logged_metrics, self.progress_bar_metrics):
            metrics.clear()
