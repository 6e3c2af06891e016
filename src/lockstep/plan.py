"""The plan of one run: frozen, picklable, resolved to the last default, and checked as a whole.

Hydra stops at the door: engines and workers see a Plan and never a config. What cannot be is refused as it is made
(`plan_checks`). No torch here.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

from lockstep import schemas
from lockstep.objectives import Objective, objective_of
from lockstep.step_plan import StepPlan
from lockstep.strategies.strategy import Strategy
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
    command: schemas.Command = field(default=schemas.Command())
    inferred: ClassVar[tuple[str, ...]] = ("command",)

    def __post_init__(self) -> None:
        from lockstep.plan_checks import check  # here: a rank unpickles a plan that was checked before

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
    def steps(self) -> StepPlan:
        """Return the counts of batches and optimizer steps."""
        return StepPlan(self)

    @property
    def saves(self) -> bool:
        """Whether there are checkpoints of the run."""
        return not self.trainer.barebones

    @property
    def order_seed(self) -> int | None:
        """Of the epochs' orders; None: each epoch is in order, and so is the same."""
        return None if self.trainer.overfit_batches else self.seed

    @property
    def objective(self) -> Objective:
        """The loss, and what is measured; of a LightningModule the sums alone that the record has."""
        if self.model.lightning:
            return objective_of("regression", 0)
        if isinstance(self.task, schemas.OwnTask):
            from lockstep.targets.objective import user_objective

            return user_objective(self.task)
        return objective_of(self.task.name, self.data.classes, getattr(self.task, "ignore_index", None))

    @property
    def monitor(self) -> tuple[str, Literal["min", "max"]]:
        """The metric that the best checkpoint is best by, and in which direction."""
        usual = f"val/{self.objective.monitor}" if self.steps.validates else "train/loss"
        name = self.checkpoint.monitor or ("" if self.model.lightning else usual)
        return name, self.checkpoint.mode or self.objective.better(name)

    @property
    def measured_by_epochs(self) -> list[str]:
        """Of what a plain net is measured by, what an epoch of training has."""
        return [name for name in self.measured if name.startswith(("train/", "val/"))]

    @property
    def measured(self) -> list[str]:
        """The names of what the run measures: what may be monitored or optimized."""
        stages = {"train": self.train, "val": self.train and self.steps.validates, "test": self.test}
        measured = [name for stage, runs in stages.items() if runs for name in self.objective.names(stage)]
        return measured + (["train_seconds", "samples_per_second"] if self.train else [])

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
