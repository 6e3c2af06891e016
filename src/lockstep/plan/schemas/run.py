"""The group `engine`; groups of keys: `process_group`, `checkpoint`, `record`, `trainer`; and the command."""

import re
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from lockstep.base.config_error import as_typed
from lockstep.base.constraints import AT_LEAST_0, Constraint, NonNegativeInt, PositiveInt, Rules, Share

if TYPE_CHECKING:
    from lockstep.plan.plan import Plan

ONLY_OF_RAW: dict[str, Any] = {
    **{"train": True, "resume": False, "checkpoint.every_n_steps": None, "compile": False},
    "checkpoint.sharded": False,
    **{"trainer.detect_anomaly": False, "trainer.reload_dataloaders_every_n_epochs": 0},
    "trainer.benchmark": None,
}
"""The only values of some keys under engine=raw and engine=both."""

ONCE = "engine=raw only repeats a training, from its first weights to its last"

OBSERVERS = {
    *("DeviceStatsMonitor", "LearningRateMonitor", "ModelCheckpoint", "ModelSummary", "ProgressBar"),
    *("RichModelSummary", "RichProgressBar", "ThroughputMonitor", "TQDMProgressBar", "FittedLine"),
}
"""Callbacks that change no training: raw leaves them out, but FittedLine, which logs values after a test."""


CALLED = re.compile(
    r"on_(fit|train|validation|test)_(start|end)|on_(train|validation|test)_(batch|epoch)_(start|end)|on_predict_.+"
    r"|on_(validation|test)_model_(eval|train)|on_validation_model_zero_grad|on_(save|load)_checkpoint"
    r"|on_(before|after)_(batch_transfer|backward)|on_before_(zero_grad|optimizer_step)"
    r"|configure_(model|optimizers|gradient_clipping)"
)
"""The hooks of a LightningModule that raw calls; one that overrides another is refused."""


@dataclass(frozen=True)
class Lightning:
    """fast_loop: whether `engine/loop.py` trains, where it can; otherwise Lightning's own loop."""

    name: Literal["lightning"]
    fast_loop: bool
    gradient_sync: ClassVar[Literal["ddp"]] = "ddp"

    def rules(self, plan: "Plan") -> Rules:
        """Yield no rules: Lightning runs every plan."""
        yield from ()


@dataclass(frozen=True)
class Raw:
    """Plain torch.distributed; `both` runs Lightning with its own loop, then this one, and compares them."""

    name: Literal["raw", "both"]
    gradient_sync: Literal["ddp", "all_reduce", "bucket", "ring", "reduce_broadcast"]
    fast_loop: ClassVar[bool] = False

    def rules(self, plan: "Plan") -> Rules:
        """Yield the rules of plans that the raw engine can run, in whose place `both` may run another strategy."""
        for key, value in ONLY_OF_RAW.items():
            yield attrgetter(key)(plan) == value, key, ONCE, f"{key}={as_typed(value)}, or engine=lightning"
        sizes = (plan.batch_size, *plan.data.val_batch_sizes, *plan.data.test_batch_sizes)
        left_out = [name for name in plan.model.hooks if not CALLED.fullmatch(name)]
        mirrors = self.name == "both" or plan.strategy.mirrored(plan)[0] is plan.strategy
        path = str((plan.model.optimizer or {}).get("_target_"))
        contiguous, precision = "memory_format=contiguous", "precision=bf16-mixed"
        for fits, key, reason, hint in (
            (plan.profiler in (None, "timeline"), "profiler", "only repeats a training", "profiler=timeline"),
            (plan.test != "best", "test", "keeps the final weights alone", "test=true"),
            (plan.memory_format != "channels_last", "memory_format", "computes contiguous nets alone", contiguous),
            (0 not in sizes, "data", "reads DataLoaders with a batch_size", "data=… with one"),
            (plan.precision != "16-mixed", "precision", "scales no loss for float16", precision),
            (mirrors, "strategy", "runs one process, or DistributedDataParallel", "strategy=ddp, or engine=both"),
            ("LBFGS" not in path, "model.optimizer", "goes backward once a step", "optimizer=adam"),
        ):
            hint = hint if "engine=" in hint else f"{hint}, or engine=lightning"
            yield fits, key, f"engine=raw {reason}", hint
        reason = f"engine=raw does not call {', '.join(left_out)}, which it overrides"
        yield not left_out, "model", reason, "engine=lightning"
        for callback in plan.callbacks:
            reason = f"engine=raw runs no callbacks, and {callback.name} may change the training"
            yield callback.name in OBSERVERS, "callbacks", reason, "callbacks=none, or engine=lightning"


Engine = Lightning | Raw

ENGINES = {"lightning": "lockstep.engine", "raw": "lockstep.raw.run"}  # the module of each, for ranks
EVERY_RUN = ("lockstep.engine.inspection", "lightning.pytorch", "torch.utils.tensorboard")
"""What the fork server imports beside the engines, once, while Hydra composes."""

Backend = Literal["auto", "gloo", "nccl"]

Timeout = Annotated[float, Constraint(lambda seconds: 0 < seconds <= 1e6, "it must be above 0, up to 1000000", "60")]


@dataclass(frozen=True)
class ProcessGroup:
    """timeout: in seconds, for the rendezvous and for each collective."""

    backend: Backend
    timeout: Timeout


@dataclass(frozen=True)
class Checkpoint:
    """Checkpoints are saved after each epoch, and after every `every_n_steps` optimizer steps.

    sharded: whether each rank writes its part of the weights and of the optimizer state.
    monitor: the metric that best.ckpt is best by; None: the attribute `monitor` of the module, or else its loss.
    mode: None: larger is better for accuracy and F1, smaller for others.
    """

    monitor: str | None
    mode: Literal["min", "max"] | None
    every_n_steps: PositiveInt | None
    sharded: bool


@dataclass(frozen=True)
class Record:
    """weights: how often the record gets fingerprints of each rank's weights, buffers and optimizer state."""

    weights: Literal["epoch", "step"]


@dataclass(frozen=True)
class Command:
    """The command line: not an option.

    words: the overrides as typed, after the folder of configurations if there is one. swept: keys that a sweep varies.
    commit: that of git in the folder where it was typed.
    """

    words: tuple[str, ...] = ()
    swept: tuple[str, ...] = ()
    commit: str = ""


@dataclass(frozen=True)
class Trainer:
    """Each field means the same as in Lightning. limit_*: a number of global batches, or a share of them."""

    limit_train_batches: Share
    limit_val_batches: Share
    limit_test_batches: Share
    overfit_batches: Share
    fast_dev_run: Annotated[bool | int, AT_LEAST_0]
    max_steps: Annotated[
        int, Constraint(lambda steps: steps >= 1 or steps == -1, "it must be 1 or more, or -1 for no limit", "1000")
    ]
    val_check_interval: Annotated[
        Share,
        Constraint(lambda interval: interval > 0, "it must be more than 0", "100, or 0.25 for four times an epoch"),
    ]
    check_val_every_n_epoch: PositiveInt | None
    gradient_clip_algorithm: Literal["norm", "value"]
    deterministic: Literal[True, False, "warn"] | None
    benchmark: bool | None
    detect_anomaly: bool
    enable_progress_bar: bool | None
    reload_dataloaders_every_n_epochs: NonNegativeInt = 0

    def rules(self, plan: "Plan") -> Rules:
        for stage, batches in plan.steps.split_batches.items():
            key = f"trainer.limit_{stage}_batches"
            runs = getattr(plan, stage) if stage != "val" else self.limit_val_batches != 0
            fits = not runs or (batches == 0 and stage != "train") or self.limit(stage, batches or 1) > 0
            hint = f"{key}=1, or " + (f"{stage}=false" if stage != "val" else "0 for no validation")
            yield fits, key, f"it leaves none of {batches or 'an unknown number of'} batches", hint
        key, interval, batches = "trainer.val_check_interval", self.val_check_interval, plan.steps.epoch_batches
        if plan.train and self.limit_val_batches != 0 and self.check_val_every_n_epoch is None:
            reason = f"then {key} counts the batches of all epochs, whose length has to be known"
            fits = batches > 0 and isinstance(interval, int)
            yield fits, "trainer.check_val_every_n_epoch", reason, f"{key}=100, or trainer.check_val_every_n_epoch=1"
        elif plan.train and self.limit_val_batches != 0:
            fits = batches > 0 or isinstance(interval, int) or interval == 1
            yield fits, key, "the length of an epoch is unknown", f"{key}=100, or {key}=1.0"
            fits = batches == 0 or isinstance(interval, float) or interval <= batches
            yield fits, key, f"an epoch has {batches} batches", f"{key}={batches}, or fewer"

    def limit(self, stage: str, batches: int) -> int:
        limit = getattr(self, f"limit_{stage}_batches")
        return min(limit, batches) if isinstance(limit, int) else int(limit * batches)

    def resolved(self) -> "Trainer":
        """Return the options with `overfit_batches` and `fast_dev_run` as limits."""
        changed: dict[str, Any] = {}
        if batches := int(self.fast_dev_run):
            changed |= {"limit_test_batches": batches, "val_check_interval": 1.0, "check_val_every_n_epoch": 1}
        if limit := batches or self.overfit_batches:
            changed |= {"limit_train_batches": limit, "limit_val_batches": limit}
        return replace(self, **changed)


DEFAULTS: dict[str, Any] = {
    **{"trainer.limit_train_batches": 1.0, "trainer.limit_val_batches": 1.0, "trainer.overfit_batches": 0},
    **{"trainer.val_check_interval": 1.0, "trainer.check_val_every_n_epoch": 1},
    "trainer.reload_dataloaders_every_n_epochs": 0,
    "trainer.gradient_clip_algorithm": "norm",
}
"""Options that results depend on. Checkpoints name those that differ."""
