"""DistributedDataParallel with fixed buckets, so that gradients are summed in one order, and without buffer broadcasts.

After the first step torch lays out its buckets anew, in the order in which gradients were ready, and a ring of more
than two ranks adds in an order that depends on the position in a bucket: a resumed run, whose process has another first
step, would differ in last bits. BatchNorm's buffers have no effect in training; all get rank 0's before an evaluation.
"""

import warnings
from collections.abc import Collection, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep.base.config_error import config_error
from lockstep.base.private_api.torch import LastToFirst, fix_buckets

UNFINISHED = "Expected to have finished reduction in the prior iteration"
"""The beginning of torch's error, raised in the next forward, if a parameter had no gradient."""


class FixedBucketDDP(LastToFirst):
    """Fills its buckets from the last parameter to the first. `averaged`: the `id` of those that require a gradient."""

    def __init__(
        self,
        module: nn.Module,
        device_ids: list[int] | list[Any] | None,
        finds_unused: bool = False,
        static_graph: bool = False,
    ) -> None:
        warnings.filterwarnings("ignore", "find_unused_parameters=True was specified")
        options: dict[str, Any] = {"find_unused_parameters": finds_unused, "static_graph": static_graph}
        super().__init__(module, device_ids, gradient_as_bucket_view=True, **options)
        self.averaged = frozenset(id(parameter) for parameter in module.parameters() if parameter.requires_grad)
        self.broadcast_buffers = False  # as an argument it has another name in newer versions of torch
        fix_buckets(self)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Compute as DistributedDataParallel does; raise a ConfigError if a parameter had no gradient before."""
        try:
            return super().forward(*inputs, **options)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if UNFINISHED not in str(error):
                raise
            key, reason = "strategy.find_unused_parameters", "a parameter received no gradient in a step"
            raise config_error(key, False, f"{reason}, and ranks wait for it", f"{key}=true") from None


def average_late(parameters: Iterable[Tensor], averaged: Collection[int]) -> None:
    """Average on every rank, before each step, the gradients of parameters that were frozen when DDP was created."""
    late = [parameter for parameter in parameters if parameter.requires_grad and id(parameter) not in averaged]
    if not late:
        return
    counts = torch.tensor([parameter.grad is not None for parameter in late], device=late[0].device).long()
    dist.all_reduce(counts)
    for parameter, count in zip(late, counts.tolist(), strict=True):
        if count:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
