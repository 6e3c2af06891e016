"""The plan of one run: frozen, picklable, resolved to the last default, and checked as a whole.

Hydra stops at the door: engines and workers see a Plan and never a config. What cannot be is refused as it is made
(`plan_checks`). No torch here.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Literal

from lockstep import schemas
from lockstep.batch_math import batch_count, window_samples
from lockstep.objectives import Objective, objective_of
from lockstep.plan_checks import check
from lockstep.schemas.coerce import FOUND
from lockstep.strategies import Strategy
from lockstep.targets.objective import own_objective
from lockstep.world import World


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
        check(self)

    @cached_property
    def world(self) -> World:
        """The ranks: how many, how they start and how they join."""
        return World(
            self.strategy.name,
            self.strategy.start,
            self.strategy.distributed,
            self.strategy.layout(self.devices).processes,
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
        before = self.steps_before(every - 1, batches)
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

    @cached_property
    def accumulation(self) -> dict[int, int]:
        """From which epoch on, from 0, an optimizer step has how many batches."""
        said = (own.scheduling for own in self.callbacks)
        return next((own for own in said if own is not None), {0: self.accumulate_grad_batches})

    def batches_per_step(self, epoch: int) -> int:
        """In an epoch, from 0."""
        return self.accumulation[max(own for own in self.accumulation if own <= epoch)]

    @property
    def epoch_steps(self) -> int:
        """Optimizer steps of the first epoch: a window of batches each, the last maybe of fewer."""
        return self.steps_before(1)

    def steps_before(self, epoch: int, batch: int = 0) -> int:
        """Optimizer steps of the whole run before batch `batch` of epoch `epoch`, both from 0."""
        changes = [*sorted(own for own in self.accumulation if own < epoch), epoch]
        spans = pairwise(changes)
        whole = sum((end - begin) * batch_count(self.epoch_batches, self.accumulation[begin]) for begin, end in spans)
        return whole + batch // self.batches_per_step(epoch)

    @property
    def saves(self) -> bool:
        """Whether there are checkpoints of the run."""
        return not self.trainer.barebones

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
        steps, most = self.steps_before(self.max_epochs), self.trainer.max_steps
        return steps if most == -1 else min(steps or most, most)

    @property
    def objective(self) -> Objective:
        """The loss, and what is measured; of a LightningModule the sums alone that the record has."""
        if self.model.lightning:
            return objective_of("regression", 0)
        if isinstance(self.task, schemas.OwnTask):
            return own_objective(self.task)
        return objective_of(self.task.name, self.data.classes, getattr(self.task, "ignore_index", None))

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
