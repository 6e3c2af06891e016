"""The ranks of ddp in turn in one process: the same dropout masks, noise and BatchNorm statistics of each rank.

A net with any of these depends on the number of ranks, and no other strategy with one process computes the same as ddp.
A debugger can stop in every rank.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lockstep.config_error import config_error
from lockstep.strategies.strategy import Forward, Layout, Strategy

if TYPE_CHECKING:
    from torch import nn

    from lockstep.plan import Plan


@dataclass(frozen=True)
class Virtual(Strategy):
    name: Literal["virtual"]
    in_process: bool | None = None

    @classmethod
    def layout(cls, devices: int) -> Layout:
        return Layout(data_parallel_size=devices, virtual_ranks=devices)

    def check(self, plan: "Plan") -> None:
        super().check(plan)
        if plan.accelerator == "gpu":
            reason = "strategy=virtual is for comparing, on a CPU"
            raise config_error("accelerator", "gpu", reason, "accelerator=cpu, or strategy=ddp")
        for key, value, off in (
            ("sync_batchnorm", plan.sync_batchnorm, "false"),
            ("dropout_rng", plan.dropout_rng == "global", "per_rank"),
        ):
            if value:
                reason = "then nothing is each rank's own, and strategy=single computes the same as ddp"
                raise config_error(key, getattr(plan, key), reason, f"{key}={off}, or strategy=single devices=1")

    def forward(self, plan: "Plan", net: "nn.Module") -> Forward:
        from lockstep.parallel.virtual_ranks import VirtualRanks

        return VirtualRanks(net, plan.devices, plan.seed)

    @classmethod
    def batch_layout(cls, run_metadata: Mapping[str, Any]) -> tuple[object, ...]:
        return "ddp", run_metadata["devices"]

    @classmethod
    def reduction_order(cls, run_metadata: Mapping[str, Any]) -> tuple[object, ...]:
        return "virtual", run_metadata["devices"]

    @property
    def resumes_as(self) -> str:
        return "ddp"
