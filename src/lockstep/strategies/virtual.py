"""The ranks of ddp in turn in one process: the same dropout masks, noise and BatchNorm statistics of each rank.

The result of a net with any of these depends on the number of ranks, so no other strategy with one process computes
the same as ddp. A debugger can stop in every rank.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.base.constraints import Rules
from lockstep.strategies.ddp import DDP
from lockstep.strategies.strategy import Strategy

if TYPE_CHECKING:
    from lockstep.plan.plan import Plan


@dataclass(frozen=True)
class Virtual(Strategy):
    name: Literal["virtual"]
    in_process: bool | None = None
    broadcast_buffers: bool | None = None
    virtual: ClassVar[bool] = True
    batch_key: ClassVar[tuple[str, ...]] = ("ddp", "devices")
    refuses_compiling: ClassVar[str] = "exchanges the buffers of the net within a batch, and is for comparing"
    order: ClassVar[str] = "virtual"

    def mirrored(self, plan: "Plan") -> tuple[Strategy, int]:
        ddp = DDP("ddp", share_device=False, broadcast_buffers=self.broadcast_buffers)
        return ddp, plan.devices

    def rules(self, plan: "Plan") -> Rules:
        yield from super().rules(plan)
        reason, hint = "strategy=virtual is for comparing, on a CPU", "accelerator=cpu, or strategy=ddp"
        yield plan.accelerator != "gpu", "accelerator", reason, hint
        reason = "it optimizes manually, and strategy=virtual adds the losses of all ranks before one backward pass"
        yield not plan.model.manual, "model", reason, "strategy=ddp"
        reason = "then nothing differs by rank, and strategy=single computes the same as ddp"
        yield not plan.sync_batchnorm, "sync_batchnorm", reason, "sync_batchnorm=false, or strategy=single devices=1"
