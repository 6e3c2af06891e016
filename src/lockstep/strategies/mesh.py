"""A mesh of ranks in three dimensions: replicas of a net that is sharded, whose layers are divided.

Consecutive ranks have parts of the layers of one plan (`tensor`) and compute on the same samples. Groups of them take
other samples: they shard all weights (`shard`, FSDP2), or are replicas of each other (`replicate`; with `shard`, HSDP).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.base.constraints import PositiveInt, Rules
from lockstep.strategies.fsdp import mesh_of, shard_net
from lockstep.strategies.tensor_parallel import Divided

if TYPE_CHECKING:
    from torch import nn

    from lockstep.plan.plan import Plan


@dataclass(frozen=True)
class Mesh(Divided):
    name: Literal["mesh"]
    replicate: PositiveInt
    shard: PositiveInt
    tensor: PositiveInt
    plan: Mapping[str, str] | None
    order: ClassVar[str] = "mesh"
    batch_key: ClassVar[tuple[str, ...]] = ("ddp", "data_size")

    def model_parallel_size(self, devices: int) -> int:
        return self.tensor if devices % self.tensor == 0 else 1  # a rule refuses others

    def described(self, plan: "Plan") -> dict[str, str | int]:
        return {"data_size": plan.data_size, "mesh_shape": f"{self.replicate} × {self.shard} × {self.tensor}"}

    def rules(self, plan: "Plan") -> Rules:
        ranks = self.replicate * self.shard * self.tensor
        reason = f"strategy.replicate={self.replicate} × shard={self.shard} × tensor={self.tensor} is {ranks}"
        shards, rest = divmod(self.shard * plan.devices, ranks)
        yield plan.devices == ranks, "devices", reason, f"devices={ranks}" if rest else f"strategy.shard={shards}"
        reason = f"it shards a net that has all weights of the module, and {plan.model.name} has others"
        yield plan.model.can_shard_net or ranks == self.tensor, "strategy", reason, "strategy=ddp"
        yield from super().rules(plan)

    def check_module(self, module: "nn.Module", devices: int) -> None:
        if self.tensor > 1:
            [*self.layers(module, self.tensor, self.shard)]

    def lay_out(self, plan: "Plan", module: "nn.Module") -> None:
        mesh = mesh_of(plan, replicate=self.replicate, shard=self.shard, tensor=self.tensor)
        if self.tensor > 1:
            self.divide(module, mesh["tensor"])
        if self.replicate * self.shard > 1:
            shard_net(module, mesh["replicate", "shard"] if self.replicate > 1 else mesh["shard"])
