"""DistributedDataParallel whose gradients are summed in one order from the first step on, and which sends nothing else.

torch lays out its buckets anew after the first step of a process, in the order in which gradients were ready. A ring
adds what the ranks bring in an order that depends on the place in a bucket, so with more than two ranks a run that was
resumed, for which the first step comes later, would differ in last bits from one that was not.

Before each forward torch would send rank 0's buffers to all. Those of BatchNorm play no part in training: rank 0's are
what they are either way, and all have them where a net is measured (`broadcast_buffers`).
"""

from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel


class FixedBucketDDP(DistributedDataParallel):
    """Buckets from the last parameter to the first, which is about how gradients become ready, and never others."""

    def __init__(self, module: nn.Module, device_ids: list[int] | list[Any] | None, **options: Any) -> None:
        super().__init__(module, device_ids, **options)
        self.broadcast_buffers = False  # as an argument it has another name in newer versions of torch
        self.reducer._push_all_rebuilt_params()  # as if all gradients had come in the order of the parameters
        self.reducer._rebuild_buckets()

    def _build_params_for_reducer(self) -> tuple[list[nn.Parameter], list[bool]]:
        parameters, sparse = super()._build_params_for_reducer()  # type: ignore[no-untyped-call]
        return parameters[::-1], sparse[::-1]
