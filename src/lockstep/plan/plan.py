"""The plan of one run: frozen, picklable, resolved and checked. Engines and workers see a plan, never a config."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from lockstep.base.config_error import config_error
from lockstep.base.constraints import Constraint, NonNegativeInt, PositiveInt, Processes, Rules, only
from lockstep.plan import schemas
from lockstep.plan.schemas.target import KEY
from lockstep.plan.step_plan import StepPlan
from lockstep.plan.world import World
from lockstep.strategies.strategy import Strategy

SUMMARY_KEYS = (
    *("engine", "strategy", "devices", "num_nodes", "world_size", "accelerator", "model", "data", "optimizer", "lr"),
    *("scheduler", "batch_size", "precision", "memory_format", "gradient_sync", "backend", "micro_batches"),
    *("sync_batchnorm", "seed", "threads", "compile"),
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
    """`config`: the composed configuration as YAML; `options`: its values by the keys of the command line."""

    name: RunName
    engine: schemas.Engine
    strategy: Strategy
    model: schemas.Module
    data: schemas.Data
    logger: tuple[schemas.Logger, ...]
    callbacks: tuple[schemas.Callback, ...]
    process_group: schemas.ProcessGroup
    checkpoint: schemas.Checkpoint
    record: schemas.Record
    trainer: schemas.Trainer
    devices: Processes
    num_nodes: PositiveInt
    accelerator: Literal["cpu", "gpu"]
    max_epochs: PositiveInt
    batch_size: PositiveInt
    precision: Literal["32-true", "64-true", "bf16-mixed", "16-mixed"]
    memory_format: Literal["auto", "contiguous", "channels_last"]
    seed: NonNegativeInt
    threads: Processes
    gradient_clip_val: (
        Annotated[float, Constraint(lambda value: value > 0, "it must be above 0", "1.0, or null for none")] | None
    )
    accumulate_grad_batches: PositiveInt
    drop_last: bool
    sync_batchnorm: bool
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
    profiler: Literal["simple", "timeline", "advanced", "pytorch"] | None = None
    config: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    command: schemas.Command = field(default=schemas.Command())

    def __post_init__(self) -> None:
        check(self)

    @cached_property
    def world(self) -> World:
        """Return how many ranks there are, and how they join."""
        return World(
            self.strategy.name,
            self.strategy.distributed,
            self.devices if self.strategy.distributed else 1,
            self.num_nodes,
            self.accelerator,
            self.strategy.share_device,
            self.threads,
            self.process_group,
            self.run_dir,
            bool(self.strategy.in_process),
        )

    @property
    def world_size(self) -> int:
        return self.world.world_size

    @property
    def data_size(self) -> int:
        """Return how many ranks take different samples of a batch: its shares."""
        return self.world_size // self.strategy.model_parallel_size(self.devices)

    def data_rank(self, rank: int) -> int:
        """Return which share of a batch a rank computes."""
        return rank // self.strategy.model_parallel_size(self.devices)

    def reports(self, rank: int) -> bool:
        """Whether a rank counts the samples of its share, their loss and what is logged of them: the first one does."""
        return rank % self.strategy.model_parallel_size(self.devices) == 0

    @property
    def gradient_sync(self) -> str:
        return self.strategy.gradient_sync(self)

    @cached_property
    def steps(self) -> StepPlan:
        return StepPlan(self)

    def summary(self) -> dict[str, str | int | float]:
        """Return what identifies the run; without optimizer, rate and schedule if the module configures its own."""
        optimizer, scheduler = self.model.optimizer, self.model.call.get("scheduler")
        left_out = () if optimizer is not None else ("optimizer", "lr", "scheduler")
        derived: dict[str, Any] = {
            "optimizer": optimizer and str(optimizer[KEY]).rpartition(".")[2],
            "lr": optimizer and optimizer.get("lr", 0.0),
            "scheduler": str(scheduler[KEY]).rpartition(".")[2] if isinstance(scheduler, Mapping) else "none",
            "backend": self.world.backend if self.world.distributed else "none",
            "micro_batches": self.strategy.micro_batches,
        }
        names = [name for name in SUMMARY_KEYS if name not in left_out]
        if self.accelerator == "gpu":
            names, derived["deterministic"] = [*names, "deterministic"], bool(self.trainer.deterministic)
        values = ((name, derived[name] if name in derived else getattr(self, name)) for name in names)
        return {name: getattr(value, "name", value) for name, value in values} | self.strategy.described(self)


def check(plan: Plan) -> None:
    parts: tuple[Any, ...] = (plan.engine, plan.strategy, plan.model, plan.trainer)
    for is_valid, key, reason, hint in chain(*(part.rules(plan) for part in parts), _rules(plan)):
        if not is_valid:
            value = attrgetter(key)(plan)
            names = [getattr(option, "name", option) for option in (value if isinstance(value, tuple) else (value,))]
            raise config_error(key, names[0] if len(names) == 1 else names, reason, hint)


def _rules(plan: Plan) -> Rules:
    """Yield the rules of keys that exclude each other."""
    size, samples = plan.batch_size, plan.data.train_samples
    fits = not (plan.drop_last and plan.data.regular and 0 < samples < size)
    reason = f"batch_size={size} is more than the {samples} samples, so every batch would be dropped"
    yield fits, "drop_last", reason, f"drop_last=false, or batch_size={samples}"
    fits = plan.precision != "16-mixed" or plan.accelerator != "cpu"
    yield fits, "precision", "it needs a GPU", "precision=bf16-mixed, or accelerator=gpu"
    yield plan.test != "best" or plan.train, "test", "only a run that trains has a best.ckpt", "test=true"
    fits = plan.process_group.backend != "nccl" or plan.accelerator == "gpu"
    reason, hint = "nccl sends between GPUs alone", "process_group.backend=gloo, or accelerator=gpu"
    yield fits, "process_group.backend", reason, hint
    fits = plan.process_group.backend != "nccl" or not plan.strategy.share_device
    hint = "process_group.backend=auto, or strategy.share_device=false"
    yield fits, "process_group.backend", "nccl takes no two ranks on one GPU", hint
    if plan.compile:
        yield from only(plan, "it runs beside the net, and would not be compiled", show_shapes=False)
    if not plan.train:
        yield bool(plan.test), "test", "with train=false nothing is left to do", "train=true or test=true"
        yield from only(plan, "it is for training, and train=false", resume=False, model_summary=False, compile=False)
        hint = "ckpt_path=logs/…/checkpoints/best.ckpt, or train=true"
        yield plan.ckpt_path is not None, "ckpt_path", "with train=false there is no trained net to test", hint
