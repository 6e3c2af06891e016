"""All-reduce of the sums that metrics are computed from."""

import torch
import torch.distributed as dist
from torch import Tensor


def all_reduce_sums(sums: Tensor, device: torch.device) -> Tensor:
    """Each sum over all ranks, in one message, by way of the rank's device, which nccl needs."""
    if not dist.is_initialized():
        return sums
    summed = sums.to(device, copy=True)
    dist.all_reduce(summed)
    return summed.cpu()
