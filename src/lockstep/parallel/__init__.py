"""The pieces that strategies and engines are made of: messages, replicas, stages, BatchNorm and dropout over ranks."""

from lockstep.parallel.all_reduce import all_reduce_sums
from lockstep.parallel.buffers import broadcast_buffers
from lockstep.parallel.global_dropout import GlobalMasks, convert_dropout
from lockstep.parallel.messages import all_gather_bytes, broadcast_bytes, gather_bytes
from lockstep.parallel.shapes import show_shapes
from lockstep.parallel.sync_batchnorm import convert_batchnorm
from lockstep.parallel.synchronize import synchronize

__all__ = [
    "GlobalMasks",
    "all_gather_bytes",
    "all_reduce_sums",
    "broadcast_buffers",
    "broadcast_bytes",
    "convert_batchnorm",
    "convert_dropout",
    "gather_bytes",
    "show_shapes",
    "synchronize",
]
