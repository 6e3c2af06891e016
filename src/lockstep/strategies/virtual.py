"""The ranks of ddp one after the other in one process, so that what each rank draws for itself can be compared.

A net with dropout, noise or BatchNorm of each rank's own depends on the number of ranks: no other strategy computes
what ddp does. This one does, and a debugger stops in any of its ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lockstep.config_error import config_error
from lockstep.strategies.strategy import Forward, Strategy

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lockstep.plan import Plan


@dataclass(frozen=True)
class Virtual(Strategy):
    name: Literal["virtual"]
    in_process: bool | None = None

    @classmethod
    def sharers(cls, devices: int) -> int:
        return devices

    @classmethod
    def virtual_ranks(cls, devices: int) -> int:
        return devices

    def check(self, plan: "Plan") -> None:
        super().check(plan)
        if plan.accelerator == "gpu":
            why = "strategy=virtual is for comparing, on a CPU"
            raise config_error("accelerator", "gpu", why, "accelerator=cpu, or strategy=ddp")
        for key, value, off in (
            ("sync_batchnorm", plan.sync_batchnorm, "false"),
            ("dropout_rng", plan.dropout_rng == "global", "per_rank"),
        ):
            if value:
                why = "then nothing is each rank's own, and strategy=single computes what ddp does"
                raise config_error(key, getattr(plan, key), why, f"{key}={off}, or strategy=single devices=1")

    def forward(self, plan: "Plan", net: "nn.Module") -> Forward:
        from lockstep.parallel.virtual_ranks import VirtualRanks

        return VirtualRanks(net, plan.devices, plan.seed)

    def other_ranks(self, net: "nn.Module") -> "Sequence[tuple[Mapping[str, Any], Mapping[str, Tensor]]]":
        from lockstep.parallel.virtual_ranks import RANKS

        return RANKS[net].states()

    def restore_other_ranks(
        self, net: "nn.Module", states: "Sequence[tuple[Mapping[str, Any], Mapping[str, Tensor]]]"
    ) -> None:
        from lockstep.parallel.virtual_ranks import RANKS

        RANKS[net].restore(states)

    @classmethod
    def batch_split(cls, heading: Mapping[str, Any]) -> tuple[object, ...]:
        return "ddp", heading["devices"]

    @classmethod
    def summation(cls, heading: Mapping[str, Any]) -> tuple[object, ...]:
        return "virtual", heading["devices"]

    @property
    def resumes_as(self) -> str:
        return "ddp"
