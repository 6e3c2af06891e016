"""Broadcast of buffers, which ranks update from their own samples."""

import torch.distributed as dist
from torch import nn


def broadcast_buffers(net: nn.Module) -> None:
    """Give every rank the buffers of rank 0 (BatchNorm's running statistics), so that all evaluate the saved net."""
    if dist.is_initialized():
        for buffer in net.buffers():
            dist.broadcast(buffer, src=0)
