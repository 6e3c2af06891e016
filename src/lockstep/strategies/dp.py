"""DataParallel: one process, a replica of the net on every device."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.config_error import require
from lockstep.strategies.net_strategy import Forward, NetStrategy
from lockstep.strategies.strategy import Layout

if TYPE_CHECKING:
    from torch import nn

    from lockstep.plan import Plan


@dataclass(frozen=True)
class DP(NetStrategy):
    name: Literal["dp"]
    in_process: bool | None = None
    batch_key: ClassVar[tuple[str, ...]] = ("dp", "devices")
    refuses_compiling: ClassVar[str] = "computes with new copies of the net in each batch"

    @classmethod
    def layout(cls, devices: int) -> Layout:
        return Layout(data_parallel_size=devices, replicas=devices)

    def check(self, plan: "Plan") -> None:
        super().check(plan)
        reason = "each replica of strategy=dp normalises its own slice of the batch"
        require(not plan.sync_batchnorm, "sync_batchnorm", True, reason, "sync_batchnorm=false, or strategy=ddp")

    def forward(self, plan: "Plan", net: "nn.Module") -> Forward:
        from torch import nn

        from lockstep.parallel.cpu_data_parallel import AutocastWrapper, CpuDataParallel
        from lockstep.precision import MIXED

        if plan.accelerator == "cpu":
            return CpuDataParallel(net, plan.devices)
        autocasting = AutocastWrapper(net, "cuda", MIXED.get(plan.precision))
        return nn.DataParallel(autocasting, device_ids=list(range(plan.devices))).__call__
