"""The group `model`: a LightningModule, by its path, and what it requires of the plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from lockstep.constraints import Rules, only
from lockstep.schemas.engine import Lightning
from lockstep.schemas.target import KEY, Target

if TYPE_CHECKING:
    from lockstep.plan import Plan


@dataclass(frozen=True)
class Module(Target):
    """A LightningModule. The facts come from the inspection.

    name: of its net's class if a YAML file names the net, else of its own.
    manual: whether it steps its optimizers itself.
    has_net: whether its attribute `net` is a plain net, which strategies may replicate, divide or shard.
    can_shard_net: whether all its parameters are those of its `net`, and FSDP can divide each.
    stages: how many devices can share the net.
    """

    manual: bool = False
    has_net: bool = False
    can_shard_net: bool = False
    stages: int = 0

    @classmethod
    def from_values(cls, key: str, values: Mapping[str, Any]) -> Self:
        net = values.get("net")
        named = net if isinstance(net, Mapping) and isinstance(net.get(KEY), str) else values
        return cls(str(named[KEY]).rpartition(".")[2], key, {**values})

    def rules(self, plan: "Plan") -> Rules:
        reason = f"it shows the attribute `net` of a module, and {self.name} sets none in its __init__"
        yield self.has_net or not plan.show_shapes, "show_shapes", reason, "show_shapes=false"
        averaged = plan.engine.gradient_sync == Lightning.gradient_sync or plan.gradient_sync == "none"
        reason = f"{self.name} optimizes manually, and only DistributedDataParallel averages in each backward pass"
        yield averaged or not self.manual, "engine.gradient_sync", reason, "engine.gradient_sync=ddp"
        reason = f"{self.name} optimizes manually, and the loss of automatic optimization alone is scaled"
        yield plan.precision != "16-mixed" or not self.manual, "precision", reason, "precision=bf16-mixed"
        if self.manual:
            reason = f"{self.name} optimizes manually, and does it itself"
            yield from only(plan, reason, accumulate_grad_batches=1, gradient_clip_val=None)

    @property
    def optimizer(self) -> Mapping[str, Any] | None:
        """Return the YAML of the optimizer that it takes as an argument, if it takes one."""
        optimizer = self.call.get("optimizer")
        return optimizer if isinstance(optimizer, Mapping) and KEY in optimizer else None
