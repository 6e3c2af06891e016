"""The plan of one run: frozen, picklable, resolved and checked. Engines and workers see a plan, never a config."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from lockstep import schemas
from lockstep.config_error import config_error
from lockstep.constraints import Constraint, NonNegativeInt, PositiveInt, Rules, only, require_measured
from lockstep.files import is_utf8
from lockstep.objectives import Objective, objective_of
from lockstep.step_plan import StepPlan
from lockstep.strategies.strategy import Strategy
from lockstep.world import World

SUMMARY_KEYS = (
    *("engine", "strategy", "devices", "num_nodes", "world_size", "accelerator", "model", "data", "optimizer", "lr"),
    *("scheduler", "batch_size", "precision", "memory_format", "gradient_sync", "backend", "micro_batches"),
    *("sync_batchnorm", "dropout_rng", "seed", "threads", "compile"),
)

RunName = Annotated[
    str,
    Constraint(
        lambda name: name != "" and not Path(name).is_absolute() and ".." not in Path(name).parts,
        "the run's folder is logs/<name>/…",
        "train",
    ),
]


@dataclass(frozen=True)
class Plan:
    name: RunName
    engine: schemas.Engine
    strategy: Strategy
    model: schemas.Model
    task: schemas.Task
    data: schemas.Data
    optimizer: schemas.Optimizer
    scheduler: schemas.Scheduler
    logger: tuple[schemas.Logger, ...]
    callbacks: tuple[schemas.UserCallback, ...]
    process_group: schemas.ProcessGroup
    checkpoint: schemas.Checkpoint
    record: schemas.Record
    trainer: schemas.Trainer
    devices: PositiveInt
    num_nodes: PositiveInt
    accelerator: Literal["cpu", "gpu"]
    max_epochs: PositiveInt
    batch_size: PositiveInt
    precision: Literal["32-true", "64-true", "bf16-mixed", "16-mixed"]
    memory_format: Literal["auto", "contiguous", "channels_last"]
    seed: NonNegativeInt
    threads: PositiveInt
    gradient_clip_val: (
        Annotated[float, Constraint(lambda value: value > 0, "it must be above 0", "1.0, or null for none")] | None
    )
    accumulate_grad_batches: PositiveInt
    drop_last: bool
    sync_batchnorm: bool
    dropout_rng: Literal["per_rank", "global"]
    show_shapes: bool
    model_summary: bool
    log_every_n_steps: PositiveInt
    detect_nan: bool
    loss_reduction: Literal["mean", "sum", "none"]
    ckpt_path: str | None
    resume: bool
    train: bool
    test: Literal[True, False, "best"]
    optimized_metric: str | None
    run_dir: str
    tags: tuple[str, ...] = ()
    compile: Literal[True, False, "dynamic"] = False
    profiler: Literal["simple", "pytorch"] | None = None
    command: schemas.Command = field(default=schemas.Command())
    inferred: ClassVar[tuple[str, ...]] = ("command",)

    def __post_init__(self) -> None:
        check(self)

    @cached_property
    def world(self) -> World:
        """Return how many ranks there are, how they start and how they join."""
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
        return self.world.world_size

    @property
    def gradient_sync(self) -> str:
        return self.strategy.gradient_sync(self)

    @cached_property
    def steps(self) -> StepPlan:
        return StepPlan(self)

    @property
    def saves(self) -> bool:
        return not self.trainer.barebones

    @property
    def objective(self) -> Objective:
        """Return the loss and the metrics; for a LightningModule, only the sums of the record."""
        if self.model.lightning:
            return replace(objective_of("regression", 0), ignored=0)  # its loss may be a mean over fewer than samples
        if isinstance(self.task, schemas.UserTask):
            from lockstep.targets.objective import user_objective

            return user_objective(self.task)
        return objective_of(self.task.name, self.data.classes, getattr(self.task, "ignore_index", None))

    @property
    def monitor(self) -> tuple[str, Literal["min", "max"]]:
        """Return the metric that the best checkpoint is best by, and whether smaller or larger values are better."""
        default = f"val/{self.objective.monitor}" if self.steps.validates else "train/loss"
        name = self.checkpoint.monitor or ("" if self.model.lightning else default)
        return name, self.checkpoint.mode or self.objective.better(name)

    @property
    def epoch_metrics(self) -> list[str] | None:
        """Return the metrics of each epoch; None if a LightningModule logs its own."""
        if self.model.lightning:
            return None
        return [name for name in self.measured if name.startswith(("train/", "val/"))]

    @property
    def measured(self) -> list[str]:
        """Return the names of what a run with a plain net measures."""
        stages = {"train": self.train, "val": self.train and self.steps.validates, "test": self.test}
        measured = [name for stage, runs in stages.items() if runs for name in self.objective.names(stage)]
        return measured + (["train_seconds", "samples_per_second"] if self.train else [])

    def summary(self) -> dict[str, str | int | float]:
        """Return what identifies the run among others. All runs have the same keys, so that they make a table."""
        derived: dict[str, str | int | float] = {
            "lr": self.optimizer.lr,
            "backend": self.world.backend if self.world.distributed else "none",
            "micro_batches": self.strategy.micro_batches,
        }
        values = ((name, derived[name] if name in derived else getattr(self, name)) for name in SUMMARY_KEYS)
        return {name: getattr(value, "name", value) for name, value in values}


def check(plan: Plan) -> None:
    plan.strategy.check(plan)
    parts = (plan.model, plan.task, plan.scheduler, *plan.callbacks, plan.trainer)
    for is_valid, key, reason, hint in chain(_batch_rules(plan), *(part.rules(plan) for part in parts), _rules(plan)):
        if not is_valid:
            value = attrgetter(key)(plan)
            names = [getattr(option, "name", option) for option in (value if isinstance(value, tuple) else (value,))]
            raise config_error(key, names[0] if len(names) == 1 else names, reason, hint)
    if plan.train:
        require_measured("checkpoint.monitor", plan.checkpoint.monitor, plan.epoch_metrics)


def _batch_rules(plan: Plan) -> Rules:
    """Yield the rules of split and batch sizes. Batches of a user's loaders may leave ranks unequal shares."""
    data, batch_size = plan.data, plan.batch_size
    if isinstance(data, schemas.Loaders) and not data.regular:
        return
    if isinstance(data, schemas.Digits | schemas.MNIST):
        used = data.train_samples + data.val_size + getattr(data, "test_size", 0)
        reason = f"its splits need more than its {data.total} samples, or leave none to train on"
        yield data.train_samples > 0 and used <= data.total, "data", reason, "smaller sizes"
    world, samples = plan.world_size * plan.strategy.layout(plan.devices).virtual_ranks, data.train_samples
    if not isinstance(data, schemas.Loaders):
        reason = f"batch_size={batch_size} is less than a sample for each of {world} ranks"
        hint = f"devices={batch_size // plan.num_nodes or 1} or fewer, or batch_size={world}"
        yield batch_size >= world, "devices", reason, hint
        below = batch_size - batch_size % world
        reason = f"{world} ranks (devices={plan.devices}) cannot share it equally"
        yield below == batch_size, "batch_size", reason, f"batch_size={below} or batch_size={below + world}"
    reason = f"batch_size={batch_size} is more than the {samples} samples, so every batch would be dropped"
    hint = f"drop_last=false, or batch_size={world * (samples // world) or world}"
    yield not plan.drop_last or batch_size <= samples, "drop_last", reason, hint


def _rules(plan: Plan) -> Rules:
    """Yield the rules of keys that exclude each other."""
    fits = plan.precision != "16-mixed" or plan.accelerator != "cpu"
    yield fits, "precision", "it needs a GPU", "precision=bf16-mixed, or accelerator=gpu"
    fits = plan.test != "best" or (plan.train and plan.saves)
    yield fits, "test", "only a run that trains and saves checkpoints has a best.ckpt", "test=true"
    fits = schemas.logger.tensorboard_of(plan) is None or is_utf8(plan.run_dir)
    reason = f"TensorBoard writes to folders with UTF-8 names only, and the run's is {plan.run_dir}"
    yield fits, "logger", reason, "logger=csv or logger=none, or another hydra.run.dir"
    hint = "resume=false, or engine=raw hydra.run.dir=…/raw for one of them"
    fits = not plan.resume or plan.engine.name != "both"
    yield fits, "resume", "engine=both is two runs, each in a folder of its own", hint
    if plan.compile:
        reason = "it runs beside the net, and would not be compiled"
        yield from only(plan, reason, dropout_rng="per_rank", show_shapes=False)
    if not plan.train:
        yield bool(plan.test), "test", "with train=false nothing is left to do", "train=true or test=true"
        yield from only(plan, "it is for training, and train=false", resume=False, model_summary=False, compile=False)
        fits, reason = plan.profiler != "pytorch", "it profiles training, and train=false"
        yield fits, "profiler", reason, "profiler=simple"
        hint = "ckpt_path=logs/…/checkpoints/best.ckpt, or train=true"
        yield plan.ckpt_path is not None, "ckpt_path", "with train=false there is no trained net to test", hint
