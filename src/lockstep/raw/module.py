"""What one rank holds during a run: the data, the module, and what the module sees as its `trainer`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any

import torch
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import ReduceLROnPlateau

from lockstep.base.private_api.torch import BATCHNORM
from lockstep.launch.topology import RankContext
from lockstep.plan.targets.kinds import overrides
from lockstep.plan.targets.locate import create
from lockstep.raw import Job, step
from lockstep.raw.data import Loader, Share, mapped, preserved_generators, seed_all, seed_by
from lockstep.raw.log import Log, preserved_metrics
from lockstep.raw.record import Record

STAGES = {"train": "training", "val": "validation", "test": "test"}


class Rank:
    """What one rank holds during a run.

    loss, weight: of the batch, and what the loss is a mean over. divisor: the sum of the weights in an optimizer step,
    if the module's steps return them. updates: the rate and the gradient norms of each update in the batch.
    factor, syncs: of `manual_backward`, on the loss, and whether it averages gradients over ranks.
    """

    wrapped: Any
    averaged: list[nn.Parameter]
    loss: Tensor | None = None
    divisor: float | None = None
    weight, factor, seconds, syncs, counts = 0.0, 1.0, 0.0, True, True

    def __init__(self, job: Job, context: RankContext) -> None:
        self.job, self.context, self.rank, self.world = job, context, context.rank, context.world_size
        self.config = configuration(job.config, self.world)
        gpu, seed = job.world.accelerator == "gpu", self.config.seed
        self.device = torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
        self.dtype = torch.float64 if self.config.precision == "64-true" else torch.float32
        self.updates: list[Any] = []
        self.by_stage: dict[str, list[Loader]] = {}
        calls: Any = OmegaConf.to_container(self.config, resolve=True)
        with preserved_generators(seed):
            self.data: Any = create("data", calls["data"]) if calls["data"] else None
        seed_all(seed)  # weights are drawn before anything else, alike on every rank
        self.module: Any = create("model", calls["model"])
        chosen = [call for call in (calls.get("callbacks") or {}).values() if isinstance(call, Mapping)]
        ours = [call for call in chosen if str(call.get("_target_")).startswith("lockstep.engine.callbacks.")]
        self.callbacks = [create("callbacks", call) for call in ours]  # that log values at the end of a test
        self.owners = [each for each in (self.data, self.module) if each is not None]
        self.trainer = trainer_of(self)
        for each in self.owners:
            each.trainer = self.trainer
        self.log = Log(self.module, self.rank)
        self.convert()
        self.record = Record(self)

    def convert(self) -> None:
        """Convert the module to the dtype and the memory format of the run, and BatchNorm to that over all ranks."""
        self.module.double() if self.dtype == torch.float64 else self.module.float()
        for layer in self.module.modules() if self.config.sync_batchnorm else ():
            if isinstance(layer, BATCHNORM):
                layer.__class__ = step.SyncBatchNorm
                object.__setattr__(layer, "rank", self)
        net = getattr(self.module, "net", None)
        if self.config.memory_format == "channels_last" and isinstance(net, nn.Module):
            net.to(memory_format=torch.channels_last)

    def prepare(self) -> None:
        """Set up data and module, create the optimizers, and choose how gradients are averaged."""
        self.call("setup", "fit")
        if overrides(self.module, "configure_model"):
            with preserved_generators(self.config.seed):
                self.module.configure_model()
            self.convert()
        self.module.to(self.device)
        self.loaders("train")  # schedules may ask for the number of steps
        trainer = self.trainer
        trainer.optimizers, trainer.lr_scheduler_configs = configured(self.module.configure_optimizers())
        self.log.synced = {str(each.monitor) for each in trainer.lr_scheduler_configs if each.reduce_on_plateau}
        several = trainer.optimizers if len(trainer.optimizers) > 1 else trainer.optimizers[0]
        object.__setattr__(self.module, "optimizers", lambda *_, **__: several)
        if not self.module.automatic_optimization:
            watch_manual_steps(self)
        step.wrap(self)
        seed_all(self.config.seed + 1 + self.rank)  # dropout and the like: each rank draws for itself

    def call(self, hook: str, stage: str) -> None:
        """Call `setup` or `teardown` of the data module and the module."""
        for each in self.owners:
            with self.as_one_process(each is self.data):
                getattr(each, hook)(stage)

    @contextmanager
    def as_one_process(self, is_data: bool = True) -> Iterator[None]:
        """Draw under the run's seed; and let a data module see one rank, since it may divide its batch size by them."""
        self.trainer.world_size = 1 if is_data else self.world
        with preserved_generators(self.config.seed):
            yield
        self.trainer.world_size = self.world

    def runs(self, stage: str) -> bool:
        """Whether a stage has a loader, a step, and a limit above 0."""
        has_loader = overrides(self.owners[0], f"{stage}_dataloader")
        has_step = overrides(self.module, f"{STAGES[stage]}_step")
        return has_loader and has_step and self.config.trainer[f"limit_{stage}_batches"] != 0

    def loaders(self, stage: str) -> list[Loader]:
        """Return this rank's views of the loaders of a stage, if it runs."""
        if stage not in self.by_stage:
            config, owner, returned = self.config, self.owners[0], None
            if self.runs(stage):
                with self.as_one_process():
                    returned = getattr(owner, f"{stage}_dataloader")()
            several = [*returned.values()] if isinstance(returned, Mapping) else returned
            several = several if isinstance(several, list | tuple) else [several] if several is not None else ()
            smallest = getattr(owner, "evaluation_batch", 1)
            self.by_stage[stage] = loaders = [Loader(each, self, stage, smallest) for each in several]
            if stage == "train":
                count, most = loaders[0].count, config.trainer.max_steps
                total = -(-count // config.accumulate_grad_batches) * config.max_epochs
                self.trainer.num_training_batches = count or float("inf")
                self.trainer.estimated_stepping_batches = min(total or most, total if most == -1 else most)
        return self.by_stage[stage]

    def transfer(self, batch: Any, loader: int = 0) -> Any:
        """Convert floats to the dtype of the run, and move the batch by the hooks of the data module or the module."""
        batch = mapped(lambda value: value.to(self.dtype) if value.is_floating_point() else value, batch)
        for name in ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer"):
            hook = getattr(self.data if self.data is not None and overrides(self.data, name) else self.module, name)
            batch = hook(batch, self.device, loader) if name.startswith("transfer") else hook(batch, loader)
        return batch

    @contextmanager
    def forward_context(self, share: Share) -> Iterator[None]:
        """The dtype of a step; and what a rank without samples computes leaves no traces."""
        self.counts = share.count > 0
        with ExitStack() as stack:
            if self.config.precision == "bf16-mixed":
                stack.enter_context(torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False))
            if not self.counts:
                stack.enter_context(preserved_generators())
                stack.enter_context(preserved_metrics(self.module))
            torch.set_default_dtype(self.dtype)
            stack.callback(torch.set_default_dtype, torch.float32)
            yield

    def seed_evaluation(self, stage: str, batch: int = -1, loader: int = -1) -> None:
        """Seed by (seed, epoch, stage, loader, batch, rank); for hooks between batches alike on every rank."""
        epoch = self.record.epoch if stage == "val" else 0
        seed_by(self.config.seed, epoch, [*STAGES].index(stage), loader, batch, 0 if batch < 0 else self.rank)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(torch.initial_seed())

    def enter(self, stage: str) -> None:
        self.trainer.training, self.trainer.validating, self.trainer.testing = (stage == each for each in STAGES)
        self.log.end_batch(stage or "train")

    def is_over(self) -> bool:
        return bool(0 < self.config.trainer.max_steps <= self.trainer.global_step)

    def is_validation_due(self, batch: int, is_last: bool) -> bool:
        every, count = self.config.trainer.val_check_interval, self.loaders("train")[0].count
        batches = every if isinstance(every, int) else max(1, int(count * every)) if count else None
        is_due = (is_last if batches is None else batch % batches == 0) or self.trainer.should_stop
        is_epoch = (self.record.epoch + 1) % self.config.trainer.check_val_every_n_epoch == 0
        return bool(is_due and is_epoch and self.loaders("val"))


def configuration(text: str, world: int) -> Any:
    """Return the configuration, with what some keys stand for: batch_size_per_device, scale_lr, fast_dev_run, …"""
    config: Any = OmegaConf.create(text)
    trainer, few = config.trainer, int(config.trainer.fast_dev_run)
    if few:
        config.max_epochs, trainer.num_sanity_val_steps, trainer.limit_test_batches = 1, 0, few
        trainer.val_check_interval, trainer.check_val_every_n_epoch = 1.0, 1
    if few or trainer.overfit_batches:
        trainer.limit_train_batches = trainer.limit_val_batches = few or trainer.overfit_batches
    if config.batch_size_per_device:
        config.batch_size = config.batch_size_per_device * world
    if config.scale_lr:
        config.optimizer.lr = config.optimizer.lr * world
    return config


def trainer_of(rank: Rank) -> Any:
    """Return what stands for a Trainer, with its public names."""
    config, clips = rank.config, rank.config.gradient_clip_val is not None
    strategy: Any = DDPStrategy() if rank.world > 1 else SingleDeviceStrategy(rank.device)
    strategy.parallel_devices = [rank.device] * rank.context.local_world_size
    strategy.backward = lambda loss, _, *rest, **options: manual_backward(rank, loss, *rest, **options)
    names = ("max_epochs", "accumulate_grad_batches", "log_every_n_steps", "precision", "num_nodes")
    flags = ("training", "validating", "testing", "sanity_checking", "should_stop", "is_last_batch")
    return SimpleNamespace(
        **{name: config.trainer[name] for name in ("max_steps", "check_val_every_n_epoch", "num_sanity_val_steps")},
        **{name: config[name] for name in names},
        **dict.fromkeys(flags, False),
        **dict.fromkeys(("current_epoch", "global_step", "node_rank"), 0),
        **{name: [] for name in ("optimizers", "lr_scheduler_configs", "callbacks", "loggers")},
        **{name: {} for name in ("callback_metrics", "logged_metrics", "progress_bar_metrics")},
        **{"world_size": rank.world, "num_devices": config.devices, "strategy": strategy, "barebones": False},
        **{"global_rank": rank.rank, "local_rank": rank.context.local_rank, "is_global_zero": rank.rank == 0},
        **{"lightning_module": rank.module, "model": rank.module, "datamodule": rank.data, "logger": None},
        **{"default_root_dir": rank.job.world.folder, "log_dir": rank.job.world.folder},
        gradient_clip_val=config.gradient_clip_val,
        gradient_clip_algorithm=config.trainer.gradient_clip_algorithm if clips else None,
        precision_plugin=SimpleNamespace(clip_gradients=step.clip_gradients),
        state=SimpleNamespace(fn="fit", stage=None, status="running"),
        print=lambda *values, **options: print(*values, **options) if rank.rank == 0 else None,
    )


def configured(returned: Any) -> tuple[list[Any], list[Any]]:
    """Return the optimizers and schedules that configure_optimizers returns, in any form that Lightning takes."""
    entries = [*returned] if isinstance(returned, list | tuple) else [] if returned is None else [returned]
    schedules: list[Any] = []
    if len(entries) == 2 and isinstance(entries[0], list | tuple):
        entries, schedules = [*entries[0]], [*entries[1]] if isinstance(entries[1], list | tuple) else [entries[1]]
    for entry in entries:
        if isinstance(entry, Mapping) and "lr_scheduler" in entry:
            given, monitor = entry["lr_scheduler"], entry.get("monitor")
            schedules.append(given if isinstance(given, Mapping) else {"scheduler": given, "monitor": monitor})
    optimizers = [entry["optimizer"] if isinstance(entry, Mapping) else entry for entry in entries]
    if not optimizers:
        optimizers = [SGD([{"params": []}], lr=0.0)]  # changes nothing
        optimizers[0].param_groups.clear()
    configs, default = [], {"interval": "epoch", "frequency": 1, "monitor": None, "name": None, "strict": True}
    for schedule in schedules:
        options: Any = {**default, **(schedule if isinstance(schedule, Mapping) else {"scheduler": schedule})}
        plateau = isinstance(options["scheduler"], ReduceLROnPlateau)
        configs.append(SimpleNamespace(**{"reduce_on_plateau": plateau, **options}))
    return optimizers, configs


def manual_step(rank: Rank, share: Share, batch: Any, index: int) -> Mapping[str, Any]:
    """Run a training step that goes backward by `self.manual_backward`, and steps its optimizers itself."""
    rank.factor = step.weight_of(rank, share, 1)
    with rank.forward_context(share):
        returned = rank.module.training_step(*step.arguments_for(rank.module.training_step, batch, index))
    outputs = dict(returned) if isinstance(returned, Mapping) else {"loss": returned}
    rank.loss = outputs["loss"].detach() if isinstance(outputs.get("loss"), Tensor) else None
    return outputs if isinstance(returned, Mapping | Tensor) else {}


def manual_backward(rank: Rank, loss: Tensor, *arguments: Any, **options: Any) -> None:
    """Go backward, then average over ranks what this pass has added to the gradients."""
    parameters, averages = rank.averaged, rank.world > 1 and rank.syncs
    earlier = [parameter.grad for parameter in parameters]
    for parameter in parameters if averages else ():
        parameter.grad = None
    rank.module.on_before_backward(loss)
    rank.module.backward(loss * rank.factor, *arguments, **options)
    rank.module.on_after_backward()
    if averages:
        step.average(step.buckets, parameters)
        for parameter, gradient in zip(parameters, earlier, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else gradient.add_(parameter.grad)


def watch_manual_steps(rank: Rank) -> None:
    """Measure, and call the module's hook, before each step of an optimizer; count it afterwards."""

    @contextmanager
    def toggle_model(optimizer: Any, sync_grad: bool = True) -> Iterator[None]:
        rank.syncs = sync_grad
        rank.module.toggle_optimizer(optimizer)
        yield
        rank.module.untoggle_optimizer(optimizer)
        rank.syncs = True

    def watch(optimizer: Any, update: Any) -> Any:
        @wraps(update)
        def update_after(closure: Callable[[], Any] | None = None) -> Any:
            loss = None if closure is None else closure()
            step.before_update(rank, optimizer)
            update()
            rank.trainer.global_step += 1
            return loss

        return update_after

    for each in rank.trainer.optimizers:
        each.step, each.toggle_model, each.optimizer = watch(each, each.step), partial(toggle_model, each), each
