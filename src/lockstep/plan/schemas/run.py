"""The group `engine`; groups of keys with a single option: `process_group`, `checkpoint`, `record`; and the command."""

import re
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from lockstep.base.config_error import as_typed
from lockstep.base.constraints import Constraint, PositiveInt, Rules

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
        yield plan.profiler in (None, "timeline"), "profiler", ONCE, "profiler=timeline, or engine=lightning"
        reason, hint = "engine=raw keeps the final weights alone", "test=true, or engine=lightning"
        yield plan.test != "best", "test", reason, hint
        reason, hint = "engine=raw computes contiguous nets alone", "memory_format=contiguous, or engine=lightning"
        yield plan.memory_format != "channels_last", "memory_format", reason, hint
        fits = 0 not in (plan.batch_size, *plan.data.val_batch_sizes, *plan.data.test_batch_sizes)
        reason = "engine=raw reads DataLoaders with a batch_size"
        yield fits, "data", reason, "data=… with one, or engine=lightning"
        reason = "engine=raw scales no loss for float16"
        yield plan.precision != "16-mixed", "precision", reason, "precision=bf16-mixed, or engine=lightning"
        left_out = [name for name in plan.model.hooks if not CALLED.fullmatch(name)]
        reason = f"engine=raw does not call {', '.join(left_out)}, which it overrides"
        yield not left_out, "model", reason, "engine=lightning"
        is_raw = plan.strategy.mirrored(plan)[0] is plan.strategy
        reason = "engine=raw runs one process, or DistributedDataParallel"
        yield is_raw or self.name == "both", "strategy", reason, "strategy=ddp, or engine=both"
        for callback in plan.callbacks:
            reason = f"engine=raw runs no callbacks, and {callback.name} may change the training"
            yield callback.name in OBSERVERS, "callbacks", reason, "callbacks=none, or engine=lightning"
        optimizer = plan.model.optimizer or {}
        fits, reason = "LBFGS" not in str(optimizer.get("_target_")), "engine=raw goes backward once a step"
        yield fits, "model.optimizer", reason, "optimizer=adam, or engine=lightning"


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
    monitor: the metric that best.ckpt is best by; None: val/acc, or the loss if there are no classes.
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
