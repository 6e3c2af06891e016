"""Objects named by an import path, as Hydra's `instantiate` takes them: `_target_: package.module.Name`, arguments.

A plan holds the path, the arguments, and what the inspection tells about the object. They are imported and called on
ranks, and before in a child process.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from lockstep.base.constraints import Rules, only

if TYPE_CHECKING:
    from lockstep.plan.plan import Plan

KEY, ARGS, PARTIAL, RECURSIVE, CONVERT = "_target_", "_args_", "_partial_", "_recursive_", "_convert_"
"""Hydra's names: what to call, positional arguments, whether to return a functools.partial instead of a call, whether
to call the targets among the arguments, and whether mappings and lists become plain ones.
"""
SPECIAL = (KEY, ARGS, PARTIAL, RECURSIVE, CONVERT)
BATCH_SIZE = 64  # the global batch size if neither the plan nor a DataLoader has one


@dataclass(frozen=True)
class Target:
    """A call.

    name: the last part of the path, for results and tables; of a module with a net in its YAML, the net's.
    key: of the target on the command line: `model`, `data`, `logger.NAME`.
    call: the path and the arguments, as in a YAML file; one that has a `_target_` itself is called first.
    """

    name: str
    key: str
    call: dict[str, Any]

    @classmethod
    def from_values(cls, key: str, values: Mapping[str, Any]) -> Self:
        """Return the target that a group of keys names, as in a YAML file."""
        net = values.get("net") if key == "model" else None
        named = net if isinstance(net, Mapping) and isinstance(net.get(KEY), str) else values
        return cls(str(named[KEY]).rpartition(".")[2], key, {**values})

    @property
    def path(self) -> str:
        return str(self.call[KEY])


@dataclass(frozen=True)
class Data(Target):
    """A LightningDataModule, or the loaders of the LightningModule (without a target). Facts come from the inspection.

    train_samples, val_size, test_size: of each split; 0 if there is none, or if the number is unknown.
    train_batches: batches of an epoch, 0 if unknown. regular: whether all but the last have the same size.
    val_batch_sizes, test_batch_sizes: the batch size of each loader, 0 if it varies.
    sample_shape, num_outputs, num_classes, class_names: the attributes of these names, if it has them.
    """

    train_samples: int = 0
    val_size: int = 0
    test_size: int = 0
    train_batches: int = 0
    regular: bool = True
    val_batch_sizes: tuple[int, ...] = ()
    test_batch_sizes: tuple[int, ...] = ()
    sample_shape: tuple[int, ...] | None = None
    num_outputs: int | None = None
    num_classes: int | None = None
    class_names: tuple[str, ...] = ()

    @property
    def is_module(self) -> bool:
        """Whether there is a LightningDataModule; otherwise the LightningModule has the loaders."""
        return bool(self.call)


@dataclass(frozen=True)
class Module(Target):
    """A LightningModule. The facts come from the inspection.

    manual: whether it steps its optimizers itself.
    has_net: whether its attribute `net` is a plain net, which strategies may replicate, divide or shard.
    can_shard_net: whether all its parameters are those of its `net`, and FSDP can divide each.
    stages: how many devices can share the net.
    parts: the groups that its YAML refers to, as `${optimizer}`; it may have an optimizer of its own.
    hooks: of Lightning that it overrides.
    """

    parts: tuple[str, ...] = ("optimizer", "scheduler")
    manual: bool = False
    has_net: bool = False
    can_shard_net: bool = False
    stages: int = 0
    hooks: tuple[str, ...] = ()

    def rules(self, plan: "Plan") -> Rules:
        reason = f"it shows the attribute `net` of a module, and {self.name} sets none in its __init__"
        yield self.has_net or not plan.show_shapes, "show_shapes", reason, "show_shapes=false"
        if self.manual:
            manually = f"{self.name} optimizes manually, and"
            averaged = plan.engine.gradient_sync == "ddp" or plan.gradient_sync == "none"
            reason = f"{manually} only DistributedDataParallel averages in each backward pass"
            yield averaged, "engine.gradient_sync", reason, "engine.gradient_sync=ddp"
            reason, hint = f"{manually} the loss of automatic optimization alone is scaled", "precision=bf16-mixed"
            yield plan.precision != "16-mixed", "precision", reason, hint
            yield from only(plan, f"{manually} does it itself", accumulate_grad_batches=1, gradient_clip_val=None)

    def key_of(self, part: str) -> str:
        """Return the key of its optimizer or schedule on the command line."""
        return part if part in self.parts else f"model.{part}"

    @property
    def optimizer(self) -> Mapping[str, Any] | None:
        """Return the YAML of the optimizer that it takes as an argument, if it takes one."""
        optimizer = self.call.get("optimizer")
        return optimizer if isinstance(optimizer, Mapping) and KEY in optimizer else None


@dataclass(frozen=True)
class Logger(Target):
    """A logger, of Lockstep or of Lightning."""

    @property
    def is_board(self) -> bool:
        """Whether it is Lockstep's TensorBoard, which also takes images."""
        return self.path == "lockstep.runs.loggers.TensorBoard"


def tensorboard_of(plan: "Plan") -> Logger | None:
    """Return the plan's first TensorBoard logger, if it has one."""
    return next((logger for logger in plan.logger if logger.is_board), None)


@dataclass(frozen=True)
class Callback(Target):
    """A callback of Lightning."""
