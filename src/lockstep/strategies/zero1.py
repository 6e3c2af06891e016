"""ZeRO, stage 1: DDP with optimizer states divided over ranks, for any module and with the same bits.

Each rank has all weights and gradients. Each parameter is updated by one rank, which alone has its state, and sent to
the others. A checkpoint has all states, so that any strategy can resume from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from lockstep.base.config_error import require
from lockstep.strategies.ddp import DDP, Replicated
from lockstep.strategies.strategy import Strategy

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from lockstep.plan.plan import Plan


@dataclass(frozen=True)
class Zero1(Replicated):
    name: Literal["zero1"]
    share_device: bool
    find_unused_parameters: bool = False
    broadcast_buffers: bool | None = None
    static_graph: bool = False
    sharded: ClassVar[bool | str] = "optimizer"

    def mirrored(self, plan: "Plan") -> tuple[Strategy, int]:
        return DDP("ddp", self.share_device, broadcast_buffers=self.broadcast_buffers), plan.devices

    def prepare_optimizers(self, plan: "Plan", optimizers: "Sequence[Optimizer]") -> None:
        """Divide the states of optimizers over ranks, or raise for one that may use several parameters at once."""
        from lockstep.base.optimizers import needs_no_closure
        from lockstep.strategies.parallel.divided_optimizer import DividedOptimizer

        for optimizer in optimizers:
            name = type(optimizer).__name__
            reason = f"{name} may compute across parameters, and each rank updates some of them"
            require(
                needs_no_closure(optimizer), "strategy", self.name, reason, "strategy=ddp, or an optimizer of torch"
            )
            DividedOptimizer(optimizer, gathers=not plan.checkpoint.sharded)
