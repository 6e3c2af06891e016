"""Pipeline parallelism: one process, the stages of a net on several devices, a batch divided into micro-batches."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lockstep.base.constraints import PositiveInt, Rules
from lockstep.strategies.dp import Forward, NetStrategy
from lockstep.strategies.strategy import stages_of

if TYPE_CHECKING:
    from lockstep.plan.plan import Plan


@dataclass(frozen=True)
class ModelParallel(NetStrategy):
    name: Literal["model_parallel"]
    micro_batches: PositiveInt
    in_process: bool | None = None
    batch_key: ClassVar[tuple[str, ...]] = ("undivided", "micro_batches")
    refuses_compiling: ClassVar[str] = "calls the stages of the net, and not the net"

    def rules(self, plan: "Plan") -> Rules:
        yield from super().rules(plan)
        stages, reason = plan.model.stages, "strategy=model_parallel needs a net with stages, and it has none"
        yield stages > 0, "model", reason, "model=split_cnn, or strategy=single"
        reason = f"model={plan.model.name} has {stages} stages"
        yield plan.devices <= stages, "devices", reason, f"devices={stages}, or fewer"
        yield not plan.show_shapes, "show_shapes", "stages are no replicas", "show_shapes=false, or strategy=dp"

    def forward(self, plan: "Plan", net: Any) -> Forward:
        """Return a function that calls the stages of a net one after the other, each on its device."""
        from lockstep.strategies.parallel.pipeline_stages import PipelineStages

        return PipelineStages(stages_of(net), self.devices(plan), self.micro_batches)
