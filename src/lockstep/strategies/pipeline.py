"""Pipeline parallelism: a process for each device, each with a part of the net, its gradients and optimizer states.

Outputs are sent to all ranks, and each computes the loss of the full batch, so that a LightningModule is as it is in
one process; torch.distributed.pipelining computes a loss of each micro-batch on the last rank alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.base.constraints import PositiveInt, Rules
from lockstep.strategies.fsdp import Sharded
from lockstep.strategies.single import Single
from lockstep.strategies.strategy import Strategy, net_of, stages_of

if TYPE_CHECKING:
    from torch import nn

    from lockstep.plan.plan import Plan


@dataclass(frozen=True)
class Pipeline(Sharded):
    name: Literal["pipeline"]
    micro_batches: PositiveInt
    schedule: str = "gpipe"
    recompute: bool = False
    share_device: bool = False
    batch_key: ClassVar[tuple[str, ...]] = ("undivided", "micro_batches")
    sends_by_gloo: ClassVar[bool] = True
    refuses_compiling: ClassVar[str] = "calls the stages of the net, and not the net"
    explained: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("out of meta tensor", "devices, meta and", "and meta!", "device meta is not", "expected device meta"),
        "a step uses weights of net outside its forward, and each rank has a part of them",
    )

    def model_parallel_size(self, devices: int) -> int:
        return devices

    def gradient_sync(self, plan: "Plan") -> str:
        return "none"

    def mirrored(self, plan: "Plan") -> tuple[Strategy, int]:
        return Single("single", in_process=False), 1

    def shards_weights(self, plan: "Plan") -> bool:
        return True

    def rules(self, plan: "Plan") -> Rules:
        stages, name = plan.model.stages, plan.model.name
        reason = f"strategy=pipeline divides a net by its stages, and that of {name} is no Sequential and names none"
        yield stages > 0, "model", reason, "model=mlp, or strategy=ddp"
        reason = f"the net of {name} has {stages} stages, and each device needs one"
        yield plan.devices <= stages, "devices", reason, f"devices={stages}, or fewer"
        reason = f"each device has a part of the net, and {name} has weights beside it, or optimizes manually"
        yield plan.model.can_shard_net and not plan.model.manual, "strategy", reason, "strategy=ddp"
        reason = "a module computes its loss of all outputs at a time, so that no micro-batch can go back before them"
        hint = "strategy.schedule=gpipe; strategy.recompute=true saves more memory"
        yield self.schedule == "gpipe", "strategy.schedule", reason, hint
        yield plan.num_nodes == 1, "num_nodes", "strategy=pipeline is on one machine", "num_nodes=1, or strategy=fsdp"
        yield not plan.show_shapes, "show_shapes", "stages are no replicas", "show_shapes=false, or strategy=dp"
        yield from super().rules(plan)

    def lay_out(self, plan: "Plan", module: "nn.Module") -> None:
        """Leave this rank its part of the net, and have `module.net(…)` call all parts."""
        from lockstep.strategies.parallel.net_proxy import replace_forward
        from lockstep.strategies.parallel.pipeline import PartOfPipeline

        net = net_of(module)
        assert net is not None
        device = self.devices(plan)[0]
        pipeline = PartOfPipeline(net, stages_of(net), self.micro_batches, device, self.recompute)
        replace_forward(module, net, pipeline)
