"""What one rank holds during a run, and the moments at which it measures, logs and records."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.errors import NotFinite
from lockstep.launch.topology import RankContext
from lockstep.targets.locate import create
from tests.mirror import Job, step
from tests.mirror.data import Loader, Share, preserved_generators, seed_all, seed_by
from tests.mirror.module import Log, attach, filled, mapped, preserved_metrics, trainer_of, widen
from tests.mirror.record import Record, fingerprints, hash_ids, update_best

STAGES = {"train": "training", "val": "validation", "test": "test"}
FROM_DATA = ("sample_shape", "num_classes", "num_outputs")
MIXED = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


class Rank:
    """What one rank holds during a run.

    epoch, batches, steps: complete epochs, batches of the current one, optimizer steps in all.
    updates: the rate and the gradient norms of each update in the batch.
    """

    optimizers: list[Any]
    schedules: list[Any]
    ddp: Any = None

    def __init__(self, job: Job, context: RankContext) -> None:
        self.config: Any = OmegaConf.create(job.config)
        self.context, self.rank, self.world, self.local_rank = (
            context,
            context.rank,
            context.world_size,
            context.local_rank,
        )
        self.folder = job.world.folder
        gpu = job.world.accelerator == "gpu"
        self.device = torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
        self.epoch = self.batches = self.steps = self.total_batches = self.samples = 0
        self.seconds, self.counted, self.weight, self.factor = 0.0, 0.0, 0.0, 1.0
        self.counts_weights, self.syncs, self.has_train_loss = False, True, False
        self.values: dict[str, float] = {}
        self.epoch_values: dict[str, float] = {}
        self.best: dict[str, Any] = {}
        self.updates: list[Any] = []
        self.loss: Tensor | None = None
        config, trainer = self.config, self.config.trainer
        few = int(trainer.fast_dev_run)
        config.max_epochs = 1 if few else config.max_epochs
        both = few or trainer.overfit_batches
        self.limits = {"train": both or trainer.limit_train_batches, "val": both or trainer.limit_val_batches}
        self.limits["test"] = few or trainer.limit_test_batches
        if config.batch_size_per_device:
            config.batch_size = config.batch_size_per_device * self.world
        if config.scale_lr:
            config.optimizer.lr = config.optimizer.lr * self.world
        self.data, self.module = self.create()
        self.by_stage: dict[str, list[Loader]] = {}
        self.log = Log(self.module, self.rank, keeps=not trainer.barebones)
        attach(self.module, self.log)
        self.trainer = self.module.trainer = trainer_of(self)
        self.trainer.lightning_module = self.trainer.model = self.module
        self.trainer.datamodule = self.data
        if self.data is not None:
            self.data.trainer = self.trainer
        self.trainer.precision_plugin = SimpleNamespace(clip_gradients=step.clip_gradients)
        self.trainer.strategy = DDPStrategy() if self.world > 1 else SingleDeviceStrategy(self.device)
        self.trainer.strategy.parallel_devices = [self.device] * context.local_world_size
        manual_backward = partial(step.manual_backward, self)
        self.trainer.strategy.backward = lambda loss, _, *a, **k: manual_backward(loss, *a, **k)
        self.dtype = torch.float64 if config.precision == "64-true" else torch.float32
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.precision == "16-mixed")
        self.convert()
        self.record = Record(Path(self.folder), self.rank, job.metadata)

    def create(self) -> tuple[Any, Any]:
        """Return the data module, or None, and the module, whose weights are drawn first, alike on every rank."""
        config, data = self.config, None
        calls = OmegaConf.to_container(config, resolve=True)
        assert isinstance(calls, dict)
        if calls["data"] is not None:
            call = dict(calls["data"])
            if "batch_size" in call:
                call["batch_size"] = call["batch_size"] or 64
            with preserved_generators(config.seed):
                data = create("data", call)
        call, net = dict(calls["model"]), calls["model"].get("net")
        call = {**call, **({"net": filled(net, data)} if isinstance(net, Mapping) and "_target_" in net else {})}
        seed_all(config.seed)
        return data, create("model", filled(call, data))

    def convert(self) -> None:
        self.module.to(self.dtype) if self.dtype == torch.float64 else self.module.float()
        net = getattr(self.module, "net", None)
        if isinstance(net, nn.Module) and self.config.memory_format == "channels_last":
            net.to(memory_format=torch.channels_last)

    def wrap(self) -> None:
        """Choose how gradients are averaged: by DistributedDataParallel during backward, or by hand after it."""
        module, sync = self.module, self.config.engine.gradient_sync
        self.wrapped: Any = step.Step(module)
        self.average: Callable[[], None] = lambda: None
        if not module.automatic_optimization:
            step.watch_manual_steps(self)
        elif self.world > 1 and sync == "ddp":
            ids = [self.device] if self.device.type == "cuda" else None
            # with find_unused_parameters the buckets stay as they are; buffers are sent before evaluations alone
            options: dict[str, Any] = {"find_unused_parameters": True, "gradient_as_bucket_view": True}
            with warnings.catch_warnings(action="ignore"):
                self.wrapped = self.ddp = DistributedDataParallel(self.wrapped, ids, **options)
            self.ddp.broadcast_buffers = False
            frozen = [each for each in module.parameters() if not each.requires_grad]
            self.average = lambda: step.average(step.all_reduce, frozen)  # of a parameter that is frozen no more
        elif self.world > 1:
            self.average = lambda: step.average(step.METHODS[sync], [*module.parameters()])

    def setup(self, stage: str) -> None:
        for each in (self.data, self.module):
            with preserved_generators(self.config.seed):
                each is None or each.setup(stage)

    def teardown(self, stage: str) -> None:
        for each in (self.data, self.module):
            each is None or each.teardown(stage)

    def loaders(self, stage: str) -> list[Loader]:
        """Return this rank's views of the loaders of a stage; none without a loader, a step, or a limit above 0."""
        if stage in self.by_stage:
            return self.by_stage[stage]
        owner = self.data or self.module
        step_name = f"{STAGES[stage]}_step"
        base = [kind for kind in type(owner).__mro__ if not kind.__module__.startswith("lightning.pytorch.core")]
        has_step = getattr(type(self.module), step_name) is not getattr(LightningModule, step_name)
        has_loader = any(
            f"{stage}_dataloader" in vars(kind) and not kind.__module__.startswith("lightning.pytorch.core")
            for kind in base
        )
        loaders: list[Loader] = []
        if has_step and has_loader and self.limits[stage] != 0:
            world, self.trainer.world_size = self.trainer.world_size, 1  # a data module may divide its batch size
            with preserved_generators(self.config.seed):
                returned = getattr(owner, f"{stage}_dataloader")()
            self.trainer.world_size = world
            several = returned.values() if isinstance(returned, Mapping) else returned
            for each in several if isinstance(returned, list | tuple | Mapping) else [returned]:
                size = self.config.batch_size if stage == "train" else None
                loader = Loader(
                    each, self.config.seed, self.rank, self.world, stage == "train", size, self.limits[stage]
                )
                loader.drop_last |= stage == "train" and bool(self.config.drop_last)
                loader.fixed = stage == "train" and self.config.trainer.overfit_batches > 0
                loader.smallest = 1 if stage == "train" else getattr(owner, "evaluation_batch", 1)
                loaders.append(loader)
        self.by_stage[stage] = loaders
        if stage == "train":
            count, accumulate = loaders[0].count, self.config.accumulate_grad_batches
            total = -(-count // accumulate) * self.config.max_epochs
            most = self.config.trainer.max_steps
            self.trainer.num_training_batches = count or float("inf")
            self.trainer.estimated_stepping_batches = most if not total else total if most == -1 else min(total, most)
        return loaders

    def transfer(self, batch: Any, loader: int = 0) -> Any:
        """Convert floats to the dtype of the run, and move the batch by the hooks of the data module or the module."""
        batch = mapped(lambda value: value.to(self.dtype) if value.is_floating_point() else value, batch)
        for name in ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer"):
            kinds = type(self.data).__mro__ if self.data is not None else ()
            is_own = any(name in vars(kind) for kind in kinds if not kind.__module__.startswith("lightning.pytorch"))
            hook = getattr(self.data if is_own else self.module, name)
            batch = hook(batch, self.device, loader) if name.startswith("transfer") else hook(batch, loader)
        return batch

    @contextmanager
    def forward_context(self, share: Share) -> Iterator[None]:
        """The dtype of a step; and what a rank without samples computes leaves no traces."""
        with ExitStack() as stack:
            if self.config.precision in MIXED:
                dtype = MIXED[self.config.precision]
                stack.enter_context(torch.autocast(self.device.type, dtype, cache_enabled=False))
            if share.count == 0:
                stack.enter_context(preserved_generators())
                stack.enter_context(preserved_metrics(self.module))
            torch.set_default_dtype(self.dtype)
            stack.callback(torch.set_default_dtype, torch.float32)
            yield

    def seed_evaluation(self, stage: str, batch: int = -1, loader: int = -1) -> None:
        """Seed by (seed, epoch, stage, loader, batch, rank); for hooks between batches alike on every rank."""
        epoch = self.epoch if stage == "val" else 0
        seed_by(self.config.seed, epoch, [*STAGES].index(stage), loader, batch, 0 if batch < 0 else self.rank)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(torch.initial_seed())

    def begin(self, stage: str) -> None:
        self.log.begin_stage(stage)
        if self.dtype == torch.float64:
            widen(self.module)

    def show_batch(self) -> None:
        values = self.log.step_values()
        shown = {entry.forked("step"): torch.tensor(entry.shown, dtype=torch.float64) for entry in values.values()}
        self.trainer.logged_metrics.update(shown)
        if self.log.stage == "train":
            self.trainer.callback_metrics.update(shown)
            plain = {name: shown[entry.forked("step")] for name, entry in values.items()}
            self.trainer.callback_metrics.update(plain)

    def end_batch(self, share: Share, is_boundary: bool) -> None:
        """Record a batch, and an optimizer step if it ends here."""
        self.show_batch()  # with what the last hook has logged
        log, weight = self.log, self.weight
        loss = None if self.loss is None else self.loss.item()
        if loss is not None and not torch.tensor(loss).isfinite() and self.config.detect_nan:
            raise NotFinite(
                f"the loss of step {self.steps + 1} is {loss}; write a smaller optimizer.lr, or detect_nan=false."
            )
        loss_sum = 0.0
        if loss is not None and weight:
            loss_sum = loss if self.config.loss_reduction == "sum" else loss * weight
        if loss is not None and (self.has_train_loss or "train/loss" not in log.entries):
            self.has_train_loss = True
            log.log("train/loss", loss, on_step=False, on_epoch=True, batch_size=weight)
        size = self.loaders("train")[0].size
        ids = hash_ids(share.ids, self.batches * size + self.rank, self.world)
        self.record.batch(loss_sum, share.count, weight, ids)
        self.batches, self.total_batches = self.batches + 1, self.total_batches + 1
        if is_boundary:
            logged: dict[str, Any] = {}
            for entry in log.entries.values():
                if entry.batch is not None:
                    kind = "logged" if entry.metric is None else "metrics"
                    logged.setdefault(kind, {})[entry.forked("step")] = (*entry.batch, entry.how)
            updates = self.updates if not self.module.automatic_optimization else self.updates[-1:]
            norms = [norm for _, of_update in updates for norm in of_update]
            first = self.optimizers[0].param_groups[0]["lr"]
            self.steps += 1
            takes = share.is_last or self.config.record.weights == "step"
            prints = fingerprints(self.module, self.optimizers) if takes else None
            self.record.step(updates[0][0] if updates else float(first), norms, logged, prints)
        log.end_batch("train")

    @property
    def is_over(self) -> bool:
        return bool(0 < self.config.trainer.max_steps <= self.trainer.global_step)

    def is_validation_due(self, batch: int, is_last: bool) -> bool:
        every, count = self.config.trainer.val_check_interval, self.loaders("train")[0].count
        if self.limits["val"] == 0 or not self.loaders("val"):
            return False
        batches = every if isinstance(every, int) else max(1, int(count * every)) if count else None
        is_due = (is_last if batches is None else batch % batches == 0) or self.trainer.should_stop
        return bool(is_due and (self.epoch + 1) % self.config.trainer.check_val_every_n_epoch == 0)

    def end_stage(self, stage: str, ends: bool) -> None:
        """Reduce what a stage has logged over all ranks: before its last hooks, and again at its end."""
        results = self.log.of_epoch(stage, ends)
        if self.trainer.sanity_checking:
            return
        tensors = {name: torch.tensor(value, dtype=torch.float64) for name, (value, _) in results.items()}
        self.trainer.logged_metrics.update(tensors)
        self.trainer.callback_metrics.update(tensors)
        named = {entry.name: tensors[name] for name, (_, entry) in results.items()}
        self.trainer.callback_metrics.update(named)
        if ends:
            values = {name: value for name, (value, _) in results.items()}
            self.values |= values
            self.epoch_values |= values if stage != "test" else {}

    def end_validation(self) -> None:
        self.record.flush(self.epoch + 1, self.steps)
        place = {"epoch": self.epoch + 1, "after_step": self.steps, "after_batch": self.batches}
        self.record.write([{"validation": {**place, **self.epoch_values}}])
        update_best(self, self.epoch_values, self.epoch + 1)
        self.epoch_values = {}

    def end_epoch(self, validated: bool) -> None:
        self.epoch += 1
        self.record.flush(self.epoch, self.steps)
        self.record.write([{"validation": {"epoch": self.epoch, **self.epoch_values}}])
        monitor = self.config.checkpoint.monitor or ""
        if validated or not self.loaders("val") or monitor in self.epoch_values or monitor.startswith("train/"):
            update_best(self, self.values, self.epoch)
        if self.rank == 0:
            shown = "  ".join(f"{name} {value:.4f}" for name, value in sorted(self.epoch_values.items()))
            print(f"epoch {self.epoch}/{self.config.max_epochs}  {shown}", flush=True)
        self.epoch_values = {}
