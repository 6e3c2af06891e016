"""DistributedDataParallel with fixed buckets, so that gradients are summed in one order, and without buffer broadcasts.

After the first step of a process torch lays out its buckets anew, in the order in which gradients were ready. A ring
adds what the ranks send in an order that depends on the position in a bucket, so with more than two ranks a resumed
run, whose process has another first step, would differ from an uninterrupted one in last bits.

Before each forward torch would broadcast rank 0's buffers. Those of BatchNorm play no part in training: rank 0's are
what they are either way, and every rank has them where a net is evaluated (`broadcast_buffers`).
"""

import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from lockstep.private_api.torch import LastToFirst, can_fix_buckets, fix_buckets
from lockstep.progress import notice


class FixedBucketDDP(LastToFirst):
    """Buckets from the last parameter to the first, which is about how gradients become ready, and never others.

    A version of torch without the private names for that keeps its first buckets where it looks for unused parameters.
    """

    def __init__(self, module: nn.Module, device_ids: list[int] | list[Any] | None, **options: Any) -> None:
        fixed = can_fix_buckets()
        options["find_unused_parameters"] = options.get("find_unused_parameters", False) or not fixed
        warnings.filterwarnings("ignore", "find_unused_parameters=True was specified")
        super().__init__(module, device_ids, **options)
        self.broadcast_buffers = False  # as an argument it has another name in newer versions of torch
        if fixed:
            fix_buckets(self)
        elif dist.get_rank() == 0:
            notice(f"torch {torch.__version__} differs: DDP looks for unused parameters in every step, which is slower")


class TrainingStep(nn.Module):
    """A LightningModule whose forward is its training step. Its parameters come in the module's own order."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *arguments: Any) -> Any:
        return self.module.training_step(*arguments)
