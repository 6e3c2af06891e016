"""The state of one rank during a run: the data, the module, and what the module reads of its `trainer`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.types import LRSchedulerConfig
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.optim import LBFGS, SGD
from torch.optim.lr_scheduler import ReduceLROnPlateau

from lockstep.base.config_error import ConfigError, require
from lockstep.base.private_api.torch import BATCHNORM
from lockstep.launch.topology import RankContext
from lockstep.plan.targets.kinds import overrides
from lockstep.plan.targets.locate import create
from lockstep.raw import Job, configuration
from lockstep.raw.average import choose_average
from lockstep.raw.batchnorm import SyncBatchNorm
from lockstep.raw.data import Loader, Share, loaders_of
from lockstep.raw.log import Log, preserved_metrics
from lockstep.raw.manual import manual_backward, watch_manual_steps
from lockstep.raw.random_state import preserved_generators, seed_all
from lockstep.raw.record import Record
from lockstep.raw.step import clip_gradients

STAGES = {"train": "training", "val": "validation", "test": "test"}


class Trainer:
    """The state of one rank during a run. The module reads it as `trainer`: attributes have Lightning's names.

    loss, count: of the batch, and what the loss is a mean over: samples, unless the step returns a weight.
    divisor: the sum of these weights in an optimizer step. updates: the rate and the gradient norms of each update
    in the batch. has_samples: of the batch, on this rank. factor, syncs: of `manual_backward`, on the loss, and
    whether it averages over ranks; went_backward: whether it was called. averaged: the parameters that it averages.
    shared_buffers: the names of those that rank 0 sends before each optimizer step, each with what holds it.
    """

    training = validating = testing = sanity_checking = should_stop = is_last_batch = barebones = False
    current_epoch, global_step, node_rank, logger = 0, 0, 0, None
    loss: Tensor | None = None
    divisor: float | None = None
    count, factor, seconds, syncs, has_samples, went_backward = 0.0, 1.0, 0.0, True, True, False
    training_step: Any
    train_dataloader = val_dataloaders = test_dataloaders = None
    num_training_batches: float
    shared_buffers: list[Any]
    average: Callable[[], None]
    averaged: list[nn.Parameter]

    def __init__(self, job: Job, context: RankContext) -> None:
        self.job, self.global_rank, self.world_size = job, context.rank, context.world_size
        self.local_rank, self.is_global_zero = context.local_rank, context.rank == 0
        self.config = config = configuration(job.config, self.world_size)
        for name in ("max_epochs", "accumulate_grad_batches", "log_every_n_steps", "precision", "num_nodes"):
            setattr(self, name, config[name])
        for name in ("max_steps", "check_val_every_n_epoch"):
            setattr(self, name, config.trainer[name])
        self.gradient_clip_val, self.num_devices = config.gradient_clip_val, config.devices
        clips = self.gradient_clip_val is not None
        self.gradient_clip_algorithm = config.trainer.gradient_clip_algorithm if clips else None
        self.default_root_dir = self.log_dir = job.world.folder
        gpu, seed = job.world.accelerator == "gpu", config.seed
        self.device = torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
        self.dtype = torch.float64 if config.precision == "64-true" else torch.float32
        # what modules read of `self.trainer.strategy`; it runs nothing but `backward`
        strategy: Any = DDPStrategy() if self.world_size > 1 else SingleDeviceStrategy(self.device)
        strategy.parallel_devices = [self.device] * context.local_world_size
        strategy.backward = lambda loss, _, *rest, **options: manual_backward(self, loss, *rest, **options)
        self.strategy = strategy
        self.precision_plugin = SimpleNamespace(clip_gradients=clip_gradients)
        self.state = SimpleNamespace(fn="fit", stage=None, status="running")
        self.print: Any = print if self.is_global_zero else lambda *_, **__: None
        self.optimizers, self.lr_scheduler_configs, self.loggers, self.updates = (list[Any]() for _ in range(4))
        self.callback_metrics, self.logged_metrics, self.progress_bar_metrics = (dict[str, Tensor]() for _ in range(3))
        self.loaders: dict[str, list[Loader]] = {}
        calls: Any = OmegaConf.to_container(config, resolve=True)
        with preserved_generators(seed):
            self.datamodule: Any = create("data", calls["data"]) if calls["data"] else None
        seed_all(seed)  # weights are drawn before anything else, alike on every rank
        self.module: Any = create("model", calls["model"])
        self.model = self.lightning_module = self.module
        chosen = [each for each in (calls.get("callbacks") or {}).values() if isinstance(each, Mapping)]
        ours = [each for each in chosen if str(each.get("_target_")).startswith("lockstep.engine.callbacks.")]
        self.callbacks: list[Any] = [create("callbacks", each) for each in ours]  # log values at the end of a test
        self.owners = [each for each in (self.datamodule, self.module) if each is not None]
        for each in self.owners:
            each.trainer = self
        self.convert()
        self.log, self.record = Log(self), Record(self)

    def convert(self) -> None:
        """Convert the module to the dtype of the run, and BatchNorm to that over all ranks."""
        self.module.double() if self.dtype == torch.float64 else self.module.float()
        for layer in self.module.modules() if self.config.sync_batchnorm else ():
            if isinstance(layer, BATCHNORM):
                layer.__class__ = SyncBatchNorm
                object.__setattr__(layer, "trainer", self)

    def prepare(self) -> None:
        """Set up data and module, create the optimizers, and choose how gradients are averaged."""
        self.call("setup", "fit")
        if overrides(self.module, "configure_model"):
            with preserved_generators(self.config.seed):
                self.module.configure_model()
            self.convert()
        self.module.to(self.device)
        count, most = loaders_of(self, "train")[0].count, self.config.trainer.max_steps
        total = -(-count // self.config.accumulate_grad_batches) * self.config.max_epochs
        self.num_training_batches = count or float("inf")  # schedules may ask for it
        self.estimated_stepping_batches = min(total or most, total if most == -1 else most)
        self.optimizers, self.lr_scheduler_configs = configured(self.module.configure_optimizers())
        fits = not any(isinstance(each, LBFGS) for each in self.optimizers)
        require(fits, "model", type(self.module).__name__, "engine=raw runs no LBFGS", "engine=lightning")
        several = self.optimizers if len(self.optimizers) > 1 else self.optimizers[0]
        object.__setattr__(self.module, "optimizers", lambda *_, **__: several)
        self.averaged = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        if not self.module.automatic_optimization:
            watch_manual_steps(self)
        choose_average(self)
        seed_all(self.config.seed + 1 + self.global_rank)  # dropout and the like: each rank draws for itself

    def call(self, hook: str, stage: str) -> None:
        """Call `setup` or `teardown` of the data module and the module."""
        for each in self.owners:
            with self.as_one_process(each is self.datamodule):
                getattr(each, hook)(stage)

    @contextmanager
    def as_one_process(self, is_data: bool = True) -> Iterator[None]:
        """Draw under the run's seed; and let a data module see one rank, since it may divide its batch size by them."""
        world_size, self.world_size = self.world_size, 1 if is_data else self.world_size
        with preserved_generators(self.config.seed):
            yield
        self.world_size = world_size

    def runs(self, stage: str) -> bool:
        """Whether a stage has a loader, a step, and a limit above 0."""
        has_loader = overrides(self.owners[0], f"{stage}_dataloader")
        has_step = overrides(self.module, f"{STAGES[stage]}_step")
        return has_loader and has_step and self.config.trainer[f"limit_{stage}_batches"] != 0

    @contextmanager
    def forward_context(self, share: Share) -> Iterator[None]:
        """Compute a step in its dtype; a rank without samples leaves no traces of what it computes."""
        self.has_samples = len(share.ids) > 0
        with ExitStack() as stack:
            if self.config.precision == "bf16-mixed":
                stack.enter_context(torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False))
            if not self.has_samples:
                stack.enter_context(preserved_generators())
                stack.enter_context(preserved_metrics(self.module))
            torch.set_default_dtype(self.dtype)
            stack.callback(torch.set_default_dtype, torch.float32)
            yield

    def begin_batch(self, share: Share) -> None:
        self.updates, self.loss, self.count = [], None, len(share.ids)
        self.log.begin_batch("train", len(share.ids))

    def enter(self, stage: str) -> None:
        self.training, self.validating, self.testing = (stage == each for each in STAGES)
        self.log.between_batches(stage or "train")

    def is_over(self) -> bool:
        return bool(0 < self.config.trainer.max_steps <= self.global_step)

    def is_validation_due(self, batch: int, is_last: bool) -> bool:
        every, epochs = self.config.trainer.val_check_interval, self.config.trainer.check_val_every_n_epoch
        count = loaders_of(self, "train")[0].count
        batch += 0 if epochs else self.record.epoch * count
        batches = every if isinstance(every, int) else max(1, int(count * every)) if count else None
        is_due = (is_last if batches is None else batch % batches == 0) or self.should_stop
        is_epoch = (self.record.epoch + 1) % (epochs or 1) == 0
        return bool(is_due and is_epoch and loaders_of(self, "val"))


def configured(returned: Any) -> tuple[list[Any], list[LRSchedulerConfig]]:
    """Return the optimizers and schedules that configure_optimizers returns, in any form that Lightning takes."""
    entries = [*returned] if isinstance(returned, list | tuple) else [] if returned is None else [returned]
    schedules, optimizers, configs = (list[Any]() for _ in range(3))
    if len(entries) == 2 and isinstance(entries[0], list | tuple):
        entries, schedules = [*entries[0]], [*entries[1]] if isinstance(entries[1], list | tuple) else [entries[1]]
    for entry in (each if isinstance(each, Mapping) else {"optimizer": each} for each in entries):
        optimizers.append(entry["optimizer"])
        if "lr_scheduler" in entry:
            given, monitor = entry["lr_scheduler"], entry.get("monitor")
            schedules.append(given if isinstance(given, Mapping) else {"scheduler": given, "monitor": monitor})
    for schedule in (each if isinstance(each, Mapping) else {"scheduler": each} for each in schedules):
        plateau = isinstance(schedule["scheduler"], ReduceLROnPlateau)
        configs.append(LRSchedulerConfig(**{"reduce_on_plateau": plateau, **schedule}))
        if configs[-1].reduce_on_plateau and configs[-1].interval == "step":
            raise ConfigError("scheduler: engine=raw steps ReduceLROnPlateau by epochs; write engine=lightning.")
    if not optimizers:
        optimizers.append(SGD([{"params": []}], lr=0.0))  # changes nothing
    return optimizers, configs
