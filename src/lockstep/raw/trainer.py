"""What a LightningModule and callbacks see as `trainer` where no Trainer runs: its public names alone."""

from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.batch_math import batch_count
from lockstep.config_error import config_error
from lockstep.loggers import Loggers
from lockstep.raw.hooks import Hooks
from lockstep.raw.trainer_strategy import Clipping, RawStrategy
from lockstep.session.callbacks import require_planned_steps
from lockstep.session.schedules import SchedulerConfig
from lockstep.session.session import Session

TRAINER_OPTIONS = (
    *("limit_train_batches", "limit_val_batches", "limit_test_batches", "fast_dev_run", "num_sanity_val_steps"),
    *("val_check_interval", "check_val_every_n_epoch", "max_steps", "barebones"),
)
PLAN_OPTIONS = ("max_epochs", "gradient_clip_val", "log_every_n_steps", "precision", "num_nodes", "ckpt_path")
RANK_OPTIONS = ("world_size", "local_rank")
"""Attributes of a Trainer that have the names of options here."""


class RawTrainer:
    """A stand-in for `lightning.Trainer`, with the public attributes that a module or a callback may read."""

    sanity_checking = predicting = interrupted = received_sigterm = False
    progress_bar_callback = None
    profiler = None

    def __init__(self, session: Session, loggers: Loggers) -> None:
        plan, context = session.plan, session.context
        self.session, self.run_loggers = session, loggers
        self.lightning_module = self.model = session.module
        source = session.data.source
        self.datamodule = source.owner if source.is_data_module else None
        self.callbacks: list[Any] = []
        self.current_epoch, self.global_step = session.progress.position.epochs, 0
        self.optimizers: list[Optimizer] = []
        self.lr_scheduler_configs: list[SchedulerConfig] = []
        self.callback_metrics: dict[str, Tensor] = {}
        self.logged_metrics: dict[str, Tensor] = {}
        self.progress_bar_metrics: dict[str, float] = {}
        self.training = self.validating = self.testing = False
        self.should_stop = self.is_last_batch = False
        self.train_dataloader: Any = None
        self.val_dataloaders: Any = None
        self.test_dataloaders: Any = None
        self.accumulate_grad_batches = plan.accumulate_grad_batches
        clips = plan.gradient_clip_val is not None
        self.gradient_clip_algorithm = plan.trainer.gradient_clip_algorithm if clips else None
        self.global_rank, self.num_devices, self.min_epochs = context.rank, plan.devices, None
        self.node_rank = (context.rank - context.local_rank) // context.local_world_size
        self.is_global_zero = context.rank == 0
        self.default_root_dir = self.log_dir = plan.run_dir
        for options, names in ((plan.trainer, TRAINER_OPTIONS), (plan, PLAN_OPTIONS), (context, RANK_OPTIONS)):
            vars(self).update({name: getattr(options, name) for name in names})
        self.state = SimpleNamespace(fn="fit" if plan.train else "test", stage=None, status="running")
        self.strategy = RawStrategy(self)
        self.precision_plugin = Clipping()
        self.manual_backward: Any = None

    def __getattr__(self, name: str) -> Any:
        """Raise for an attribute that only Lightning's Trainer has.

        Raises:
            AttributeError: always, with the engine that has it.
        """
        raise AttributeError(f"engine=raw has no trainer.{name}; write engine=lightning for a module that needs it")

    def __deepcopy__(self, _: object) -> "RawTrainer":
        """Return the same object: a copy of the module has this trainer."""
        return self

    @property
    def loggers(self) -> list[Any]:
        return self.run_loggers.lightning

    @property
    def logger(self) -> Any:
        return next(iter(self.loggers), None)

    @property
    def num_training_batches(self) -> float:
        return self.session.plan.steps.epoch_batches or float("inf")

    @property
    def estimated_stepping_batches(self) -> float:
        """Return the optimizer steps of the run, by the current accumulation; `max_steps` if unknown."""
        plan, most = self.session.plan, self.max_steps
        steps = batch_count(plan.steps.epoch_batches, self.accumulate_grad_batches) * plan.max_epochs
        return most if steps == 0 else steps if most == -1 else min(steps, most)

    @property
    def num_val_batches(self) -> list[float]:
        return [_length(own) for own in self.session.data.of_stage.get("val", [])]

    @property
    def num_test_batches(self) -> list[float]:
        return [_length(own) for own in self.session.data.of_stage.get("test", [])]

    @property
    def evaluating(self) -> bool:
        return self.validating or self.testing

    @property
    def device_ids(self) -> list[int]:
        return [*range(self.num_devices)]

    @property
    def enable_validation(self) -> bool:
        return self.session.data.runs("val")

    @property
    def checkpoint_callback(self) -> None:
        return None

    def print(self, *values: Any, **options: Any) -> None:
        if self.is_global_zero:
            print(*values, **options)

    def take_callbacks(self, callbacks: list[Any]) -> None:
        """Take the plan's, then the module's own, which replace those of the same kind.

        Raises:
            ConfigError: one changes the batches of an optimizer step, unknown to the plan.
        """
        module = self.lightning_module
        configured = module.configure_callbacks() if hasattr(module, "configure_callbacks") else []
        of_module = configured if isinstance(configured, list | tuple) else [configured]
        kinds = {type(callback) for callback in of_module}
        self.callbacks = [*(callback for callback in callbacks if type(callback) not in kinds), *of_module]
        require_planned_steps(self.session.plan, self.callbacks)
        if self.callbacks:
            from lockstep.private_api import lightning as private  # with Lightning, as they are

            vars(self).update(private.names_read(lambda: self.session.progress.position.steps, self))
        for callback in self.callbacks:
            callback.log, callback.log_dict = module.log, module.log_dict

    def setup(self, hooks: Hooks, stage: str) -> None:
        """Set up the data, then callbacks and the module, for fit or test."""
        if self.datamodule is not None:
            self.datamodule.trainer = self
            self.datamodule.setup(stage)
        hooks.call("setup", stage=stage)

    def check_optimizers(self, module: nn.Module) -> None:
        """Refuse several optimizers where nobody says which one steps.

        Raises:
            ConfigError: automatic optimization has more than one.
        """
        object.__setattr__(module, "optimizers", self._of_module)
        if not self.session.manual and len(self.optimizers) > 1:
            name = self.session.plan.model.name
            count = len(self.optimizers)
            reason = f"its configure_optimizers returns {count} optimizers, and automatic optimization has one"
            raise config_error("model", name, reason, "self.automatic_optimization = False in it")

    def _of_module(self, use_pl_optimizer: bool = True) -> Any:
        """Return what `self.optimizers()` returns in the module."""
        return self.optimizers[0] if len(self.optimizers) == 1 else self.optimizers

    def enter(self, stage: str, loaders: list[Any]) -> None:
        """Set the attributes that say which stage runs."""
        self.training, self.validating, self.testing = False, stage == "val", stage == "test"
        setattr(self, f"{stage}_dataloaders", loaders if len(loaders) > 1 else loaders[0])

    def leave(self, stage: str) -> None:
        self.training, self.validating, self.testing = stage == "val", False, False


def _length(loader: Any) -> float:
    try:
        return len(loader)
    except TypeError:
        return float("inf")
