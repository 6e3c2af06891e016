"""Whether all ranks call the same blocks of a sharded net, and use the same weights of each.

Each call of a block gathers its weights from all ranks, and its backward reduces their gradients. Where ranks choose
blocks by their samples, as experts do, FSDP2 mixes the weights of one with those of another, without a word.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from lockstep.base.config_error import config_error
from lockstep.strategies.parallel.tensor_layout import is_sharded

if TYPE_CHECKING:
    from lockstep.plan.plan import Plan

MODULUS = 2**40  # sums over ranks are exact in float64


class UsedWeights:
    """Compares over ranks what a backward and the forwards before it have used.

    calls: a hash of the order of the blocks that this rank has called. gradients: of the weights with a gradient.
    sums: those of an earlier backward over all ranks, and this rank's; looked at with the next one, so that no GPU is
    waited for.
    """

    def __init__(self, plan: "Plan", module: nn.Module) -> None:
        self.plan, self.device = plan, plan.strategy.devices(plan)[0]
        self.calls = self.gradients = 0
        self.watched = set[Tensor]()
        self.sums: tuple[Tensor, Tensor] | None = None
        self.blocks = [each for each in module.modules() if isinstance(each, FSDPModule)]
        for index, block in enumerate(self.blocks):
            block.register_forward_pre_hook(partial(self._called, index))

    def _called(self, index: int, block: nn.Module, _: Any) -> None:
        self.calls = (self.calls * 31 + index + 1) % MODULUS
        if not torch.is_grad_enabled():
            return
        gathered = ((name, weight) for name, weight in block.named_parameters() if not is_sharded(weight))
        watch(((crc32(f"{index} {name}".encode()), weight) for name, weight in gathered), self.watched, self._used)

    def _used(self, key: int) -> None:
        self.gradients = (self.gradients + key) % MODULUS

    def compare(self) -> None:
        """Begin to compare a backward, and raise if ranks differed in the one before. To be called by every rank."""
        if not self.blocks:
            return
        if self.sums is not None and (self.sums[0] != self.sums[1] * dist.get_world_size()).any():
            reason = (
                f"ranks use different blocks or weights of {self.plan.model.name}.net in a step, which would be mixed"
            )
            hint = "strategy.module=shard with strategy=fsdp, or strategy=ddp"
            raise config_error("strategy", self.plan.strategy.name, reason, hint)
        used = torch.tensor([self.calls, self.gradients], dtype=torch.float64, device=self.device)
        self.sums = used.clone(), used
        dist.all_reduce(self.sums[0])
        self.calls = self.gradients = 0


def watch(weights: Iterable[tuple[int, Tensor]], watched: set[Tensor], used: Callable[[int], None]) -> None:
    """Have the weights that are not `watched` yet call `used` with their key when a backward gives them a gradient."""
    for key, weight in weights:
        if weight.requires_grad and weight not in watched:
            watched.add(weight)
            weight.register_post_accumulate_grad_hook(lambda _, key=key: used(key))  # type: ignore[no-untyped-call]
