"""The pieces that strategies and engines are made of: messages, replicas, stages, BatchNorm and dropout over ranks."""

from lockstep.parallel.all_reduce import all_reduce_sums
from lockstep.parallel.buffers import broadcast_buffers
from lockstep.parallel.global_dropout import GlobalMasks, convert_dropout
from lockstep.parallel.messages import from_first, to_all, to_first
from lockstep.parallel.shapes import show_shapes
from lockstep.parallel.sync_batchnorm import convert_batchnorm
from lockstep.parallel.synchronize import synchronize

__all__ = [
    "GlobalMasks",
    "all_reduce_sums",
    "broadcast_buffers",
    "convert_batchnorm",
    "convert_dropout",
    "from_first",
    "show_shapes",
    "synchronize",
    "to_all",
    "to_first",
]
