"""What a LightningModule and callbacks see as `trainer` where no Trainer runs: its public names alone."""

from functools import cached_property
from types import SimpleNamespace
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from lockstep.raw.precision import Precision
from lockstep.session.session import Session
from lockstep.step_plan import batch_count

TRAINER_OPTIONS = (
    *("limit_train_batches", "limit_val_batches", "limit_test_batches", "fast_dev_run", "num_sanity_val_steps"),
    *("val_check_interval", "check_val_every_n_epoch", "max_steps", "barebones"),
)
PLAN_OPTIONS = ("max_epochs", "gradient_clip_val", "log_every_n_steps", "precision", "num_nodes", "ckpt_path")
RANK_OPTIONS = ("world_size", "local_rank")
"""Attributes of a Trainer that are copied from the plan's trainer options, the plan and the rank's context."""


class RawTrainer:
    """A stand-in for `lightning.Trainer`, with the public attributes that a module or a callback may read."""

    training = validating = testing = sanity_checking = False
    should_stop = is_last_batch = False
    checkpoint_callback = profiler = None
    global_step = 0
    train_dataloader: Any = None
    val_dataloaders: Any = None
    test_dataloaders: Any = None
    manual_backward: Any = None

    def __init__(self, session: Session) -> None:
        plan, context, source = session.plan, session.context, session.data.source
        self.session = session
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
        strategy.backward = lambda loss, _, *arguments, **options: self.manual_backward(loss, *arguments, **options)
        return strategy

    @property
    def loggers(self) -> list[Any]:
        return self.session.loggers.loggers

    @property
    def logger(self) -> Any:
        return next(iter(self.loggers), None)

    @property
    def num_training_batches(self) -> float:
        return self.session.plan.steps.epoch_batches or float("inf")

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
        configured = module.configure_callbacks() if hasattr(module, "configure_callbacks") else []
        module_callbacks = configured if isinstance(configured, list | tuple) else [configured]
        replaced = {type(callback) for callback in module_callbacks}
        self.callbacks = [*(callback for callback in callbacks if type(callback) not in replaced), *module_callbacks]
        if self.callbacks:
            from lockstep.private_api import lightning as private  # imports Lightning, as the callbacks have

            vars(self).update(private.names_read(lambda: self.session.progress.position.steps, self))
        for callback in self.callbacks:
            callback.log, callback.log_dict = module.log, module.log_dict

    def begin_evaluation(self, stage: str, loaders: list[Any]) -> None:
        self.training, self.validating, self.testing = False, stage == "val", stage == "test"
        setattr(self, f"{stage}_dataloaders", loaders if len(loaders) > 1 else loaders[0])
        if self.testing:
            self.reset_metrics()

    def reset_metrics(self) -> None:
        for metrics in (self.callback_metrics, self.logged_metrics, self.progress_bar_metrics):
            metrics.clear()

    def end_evaluation(self, stage: str) -> None:
        self.training, self.validating, self.testing = stage == "val", False, False
