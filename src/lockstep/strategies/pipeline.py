"""Pipeline parallelism: a process for each device, each with a part of the net."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.base.constraints import PositiveInt, Rules
from lockstep.strategies.single import Single
from lockstep.strategies.strategy import Strategy

if TYPE_CHECKING:

    from lockstep.plan.plan import Plan


@dataclass(frozen=True)
class Pipeline(Strategy):
    name: Literal["pipeline"]
    micro_batches: PositiveInt
    distributed: ClassVar[bool] = True
    sharded: ClassVar[bool | str] = True
    batch_key: ClassVar[tuple[str, ...]] = ("", "devices", "micro_batches")
    refuses_compiling: ClassVar[str] = "calls the stages of the net, and not the net"

    def data_parallel_size(self, devices: int) -> int:
        return 1

    def mirrored(self, plan: "Plan") -> tuple[Strategy, int]:
        return Single("single", in_process=False), 1

    def rules(self, plan: "Plan") -> Rules:
        yield from super().rules(plan)
        stages, name = plan.model.stages, plan.model.name
        reason = f"strategy=pipeline divides a net by its stages, and that of {name} is no Sequential and names none"
        yield stages > 0, "model", reason, "model=mlp, or strategy=ddp"
        reason = f"the net of {name} has {stages} stages, and each device needs one"
        yield plan.world_size <= stages, "devices", reason, f"devices={stages}, or fewer"
        reason = f"each device has a part of the net, and {name} has weights beside it, or optimizes manually"
        yield plan.model.can_shard_net and not plan.model.manual, "strategy", reason, "strategy=ddp"
        fits = plan.accelerator != "gpu" or plan.world.backend != "gloo"
        reason, hint = "gloo cannot send GPU tensors from rank to rank", "process_group.backend=nccl"
        yield fits, "process_group.backend", reason, hint
        yield not plan.show_shapes, "show_shapes", "stages are no replicas", "show_shapes=false, or strategy=dp"
        reason = "its loss scaler would look at each part alone, so ranks would not skip the same steps"
        yield plan.precision != "16-mixed", "precision", reason, "precision=bf16-mixed, or strategy=ddp"
