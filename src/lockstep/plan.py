"""The plan of one run: frozen, picklable, resolved to the last default, and checked as a whole.

Hydra stops at the door: engines and workers see a Plan and never a config. What cannot be is refused here, in one
sentence that names the key and what to write instead. No torch here.
"""

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from lockstep import schemas
from lockstep.batch_math import batch_count, window_samples
from lockstep.config_error import config_error, require
from lockstep.objectives import Objective, objective_of
from lockstep.schemas.coerce import FOUND
from lockstep.strategies import Strategy
from lockstep.targets.objective import own_objective
from lockstep.world import World


def require_inside(name: object) -> None:
    """Refuse a run's name that would lead out of logs/."""
    path = Path(str(name))
    inside = name != "" and not path.is_absolute() and ".." not in path.parts
    require(inside, "name", name, "the run's folder is logs/<name>/…", "name=train, say")
    short = all(len(os.fsencode(part)) <= 255 for part in path.parts) and len(os.fsencode(path)) <= 1024
    require(short, "name", name, "a folder's name has 255 bytes at the most, a path 1024", "name=train, say")


@dataclass(frozen=True)
class Plan:
    name: str
    engine: schemas.Engine
    strategy: Strategy
    model: schemas.Model
    task: schemas.Task
    data: schemas.Data
    optimizer: schemas.Optimizer
    scheduler: schemas.Scheduler
    logger: tuple[schemas.Logger, ...]
    callbacks: tuple[schemas.OwnCallback, ...]
    process_group: schemas.ProcessGroup
    checkpoint: schemas.Checkpoint
    record: schemas.Record
    trainer: schemas.Trainer
    devices: int
    num_nodes: int
    accelerator: Literal["cpu", "gpu"]
    max_epochs: int
    batch_size: int
    precision: Literal["32-true", "64-true", "bf16-mixed", "16-mixed"]
    memory_format: Literal["auto", "contiguous", "channels_last"]
    seed: int
    threads: int
    gradient_clip_val: float | None
    accumulate_grad_batches: int
    drop_last: bool
    sync_batchnorm: bool
    dropout_rng: Literal["per_rank", "global"]
    show_shapes: bool
    model_summary: bool
    log_every_n_steps: int
    detect_nan: bool
    loss_reduction: Literal["mean", "sum", "as_is"]
    ckpt_path: str | None
    resume: bool
    train: bool
    test: bool
    optimized_metric: str | None
    run_dir: str
    command: schemas.Command = field(default=schemas.Command(), metadata={FOUND: True})

    def __post_init__(self) -> None:
        self._check_numbers()
        self.strategy.check(self)
        self._check_batches()
        self._check_length()
        for part in (
            self.model,
            self.task,
            self.scheduler,
            *self.logger,
            *self.callbacks,
            self.checkpoint,
            self.trainer,
        ):
            part.check(self)
        self._check_work()

    @cached_property
    def world(self) -> World:
        """The ranks: how many, how they start and how they join."""
        return World(
            self.strategy.name,
            self.strategy.start,
            self.strategy.distributed,
            self.strategy.ranks(self.devices),
            self.num_nodes,
            self.accelerator,
            self.strategy.share_device,
            self.threads,
            self.process_group,
            self.run_dir,
            self.strategy.max_restarts,
            bool(self.strategy.in_process),
        )

    @property
    def world_size(self) -> int:
        """Ranks over all machines."""
        return self.world.world_size

    @property
    def gradient_sync(self) -> str:
        """How gradients are averaged over ranks."""
        return self.strategy.gradient_sync(self)

    @cached_property
    def epoch_batches(self) -> int:
        """Global batches of an epoch; 0 where only the user's own loader knows, when it ends."""
        if isinstance(self.data, schemas.Loaders) and not self.data.regular:
            return self.trainer.kept("train", self.data.train_batches)
        return batch_count(self.epoch_samples, self.batch_size, self.drop_last)

    @cached_property
    def epoch_samples(self) -> int:
        """Training samples of an epoch, over all ranks."""
        return self.trainer.limited("train", self.data.train_samples, self.batch_size, self.drop_last)

    def samples_of(self, stage: Literal["val", "test"], size: int) -> int:
        """Of a split of so many samples, those that are evaluated."""
        return self.trainer.limited(stage, size, self.batch_size)

    @property
    def validates(self) -> bool:
        """Whether there is any validation."""
        return self.samples_of("val", self.data.val_size) > 0 and self.comes_to_validation

    @property
    def comes_to_validation(self) -> bool:
        """Whether the run comes to a validation, whatever there is to validate on."""
        every, most = self.trainer.check_val_every_n_epoch, self.trainer.max_steps
        batches = (self.validation_batches or 1) - 1  # before the one that the first validation follows
        before = (every - 1) * self.epoch_steps + batches // self.accumulate_grad_batches
        counted = self.epoch_steps and not self.model.lightning  # whose steps only its optimizers count
        reached = not counted or most == -1 or before < most
        return self.max_epochs >= every and reached

    @cached_property
    def validation_batches(self) -> int | None:
        """Batches of an epoch from one validation to the next; None: the epoch's end, which nobody knows."""
        interval = self.trainer.val_check_interval
        if isinstance(interval, int):
            return interval
        return max(1, int(self.epoch_batches * interval)) if self.epoch_batches else None

    def validates_after(self, epoch: int, batch: int | None = None) -> bool:
        """Whether a validation follows so many batches of this epoch, from 1; None: all of them."""
        return self.validates and self.due_to_validate(epoch, batch)

    def due_to_validate(self, epoch: int, batch: int | None = None) -> bool:
        """The same, whatever there is to validate on."""
        done, every = self.epoch_batches if batch is None else batch, self.validation_batches
        in_turn = batch is None if every is None else done % every == 0
        return in_turn and epoch % self.trainer.check_val_every_n_epoch == 0

    def trained(self, epochs: int, steps: int) -> bool:
        """Whether training is over after so many epochs, and steps as Lightning's global_step counts them."""
        return epochs >= self.max_epochs or 0 < self.trainer.max_steps <= steps

    @property
    def epoch_steps(self) -> int:
        """Optimizer steps of an epoch: a window of `accumulate_grad_batches` each, the last maybe of fewer."""
        return batch_count(self.epoch_batches, self.accumulate_grad_batches)

    @property
    def order_seed(self) -> int | None:
        """Of the epochs' orders; None: each epoch is in order, and so is the same."""
        return None if self.trainer.overfit_batches else self.seed

    def batches_before(self, epoch: int, batch: int) -> int:
        """Global batches of the whole run before batch `batch` of epoch `epoch`, both from 0."""
        return epoch * self.epoch_batches + batch

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run; 0 where nobody knows."""
        steps, most = self.epoch_steps * self.max_epochs, self.trainer.max_steps
        return steps if most == -1 else min(steps or most, most)

    @property
    def by_module(self) -> bool:
        """Whether a LightningModule is trained: the user's, or ours around a plain net with what modules alone have."""
        return self.model.lightning or bool(self.callbacks) or isinstance(self.data, schemas.Loaders)

    @property
    def objective(self) -> Objective:
        """The loss, and what is measured; of a LightningModule the sums alone that the record has."""
        if self.model.lightning:
            return objective_of("regression", 0)
        if isinstance(self.task, schemas.OwnTask):
            return own_objective(self.task)
        return objective_of(self.task.name, self.data.classes)

    @property
    def monitor(self) -> tuple[str, Literal["min", "max"]]:
        """The metric that the best checkpoint is best by, and in which direction."""
        usual = f"val/{self.objective.monitor}" if self.validates else "train/loss"
        name = self.checkpoint.monitor or ("" if self.model.lightning else usual)
        return name, self.checkpoint.mode or self.objective.better(name)

    @property
    def measured_by_epochs(self) -> list[str]:
        """Of what a plain net is measured by, what an epoch of training has."""
        return [name for name in self.measured if name.startswith(("train/", "val/"))]

    @property
    def measured(self) -> list[str]:
        """The names of what the run measures: what may be monitored or optimized."""
        stages = {"train": self.train, "val": self.train and self.validates, "test": self.test}
        measured = [name for stage, runs in stages.items() if runs for name in self.objective.names(stage)]
        return measured + (["train_seconds", "samples_per_second"] if self.train else [])

    def loss_scale(self, batch: int) -> float:
        """From a rank's loss sum over its part of global batch `batch` to its part of the optimizer step's mean.

        The engines divide by the number of accumulated batches, and by the world size where they average gradients
        over ranks; neither knows how many samples a ragged batch or a short window really holds, so both divisions are
        undone here.
        """
        accumulate = self.accumulate_grad_batches
        if batch < self.epoch_batches - accumulate:  # its window is full
            return self.world_size / self.batch_size
        samples = window_samples(self.epoch_samples, self.batch_size, accumulate, batch, self.drop_last)
        return self.world_size * accumulate / samples

    def summary(self) -> dict[str, str | int | float]:
        """What tells runs apart beside their results: the same keys for every run, so that they make a table."""
        return {
            "engine": self.engine.name,
            "strategy": self.strategy.name,
            "devices": self.devices,
            "num_nodes": self.num_nodes,
            "world_size": self.world_size,
            "accelerator": self.accelerator,
            "model": self.model.name,
            "data": self.data.name,
            "optimizer": self.optimizer.name,
            "lr": self.optimizer.lr,
            "scheduler": self.scheduler.name,
            "batch_size": self.batch_size,
            "precision": self.precision,
            "memory_format": self.memory_format,
            "gradient_sync": self.gradient_sync,
            "backend": self.world.backend if self.world.distributed else "none",
            "micro_batches": self.strategy.micro_batches,
            "sync_batchnorm": self.sync_batchnorm,
            "dropout_rng": self.dropout_rng,
            "seed": self.seed,
            "threads": self.threads,
        }

    def _check_numbers(self) -> None:
        require_inside(self.name)
        counts = ("devices", "num_nodes", "max_epochs", "batch_size", "threads")
        for key in (*counts, "accumulate_grad_batches", "log_every_n_steps"):
            value = getattr(self, key)
            require(value >= 1, key, value, "it must be 1 or more", f"{key}=1")
            require(value < 2**31, key, value, "it must be below 2^31", f"{key}=1, say")
        require(0 <= self.seed < 2**63, "seed", self.seed, "it must be at least 0 and below 2^63", "seed=42")
        clip = self.gradient_clip_val
        if clip is not None and clip <= 0:
            instead = "gradient_clip_val=1.0, say, or null for none"
            raise config_error("gradient_clip_val", clip, "it must be above 0", instead)
        if self.precision == "16-mixed" and self.accelerator == "cpu":
            instead = "precision=bf16-mixed, or accelerator=gpu"
            raise config_error("precision", self.precision, "it needs a GPU", instead)

    def _check_batches(self) -> None:
        theirs = isinstance(self.data, schemas.Loaders)  # ranks may have unequal shares, or none
        if theirs and not self.data.regular:  # type: ignore[union-attr]
            return
        world, samples = self.world_size * self.strategy.virtual_ranks(self.devices), self.data.train_samples
        if self.batch_size < world and not theirs:
            why = f"batch_size={self.batch_size} is less than a sample for each of {world} ranks"
            nodes = f" with num_nodes={self.num_nodes}" if self.num_nodes > 1 else ""
            most = self.batch_size // self.num_nodes or 1
            instead = f"devices={most} or fewer{nodes}, or batch_size={world}"
            raise config_error("devices", self.devices, why, instead)
        if (spare := self.batch_size % world) and not theirs:
            below, above = self.batch_size - spare, self.batch_size - spare + world
            why = f"{world} ranks (devices={self.devices}) cannot share it equally"
            raise config_error("batch_size", self.batch_size, why, f"batch_size={below} or batch_size={above}")
        if self.drop_last and self.batch_size > samples:
            why = f"batch_size={self.batch_size} is more than the {samples} samples, so every batch would be dropped"
            raise config_error(
                "drop_last", True, why, f"drop_last=false, or batch_size={world * (samples // world) or world}"
            )

    def _check_length(self) -> None:
        """Refuse for a plain net what needs to know how long an epoch is, or how large each batch."""
        if self.model.lightning or not isinstance(self.data, schemas.Loaders):
            return
        counts = isinstance(self.scheduler, schemas.OneCycle | schemas.WarmupLinear)
        if counts and not self.total_steps:
            why = f"its curve is of the whole run, and data={self.data.name} does not say how long an epoch is"
            raise config_error("scheduler", self.scheduler.name, why, "scheduler=none, or one by _target_")
        if self.dropout_rng != "per_rank":
            why = f"data={self.data.name} does not say how large each batch is"
            raise config_error("dropout_rng", self.dropout_rng, why, "dropout_rng=per_rank")

    def _check_work(self) -> None:
        if not self.train and not self.test:
            raise config_error("test", False, "with train=false nothing is left to do", "train=true or test=true")
        if self.resume and not self.train:
            raise config_error("resume", True, "with train=false there is no training to go on with", "resume=false")
        if self.resume and self.engine.name == "both":
            why = "engine=both is two runs, each in a folder of its own"
            raise config_error("resume", True, why, "resume=false, or engine=raw hydra.run.dir=…/raw for one of them")
        if not self.train and self.ckpt_path is None:
            why = "with train=false there is no trained net to test"
            raise config_error("ckpt_path", None, why, "ckpt_path=logs/…/checkpoints/best.ckpt, or train=true")
        if self.loss_reduction != "mean" and not self.model.lightning:
            why = "the loss of a plain net is its task's"
            raise config_error("loss_reduction", self.loss_reduction, why, "loss_reduction=mean")
        if self.model_summary and not self.train:
            why = "it is printed before training, and there is none"
            raise config_error("model_summary", True, why, "model_summary=false, or train=true")
        if isinstance(self.data, schemas.ModelLoaders) and not self.model.lightning:
            why = "it takes the loaders that a LightningModule has itself, and a plain net has none"
            raise config_error("data", self.data.name, why, "data=… of a data set, or model=… of a LightningModule")
        if self.optimized_metric is not None and not self.model.lightning:
            known = self.optimized_metric in self.measured
            why = "this run measures no such thing"
            require(known, "optimized_metric", self.optimized_metric, why, f"one of {', '.join(self.measured)}")
