"""The memory of a rank: what glibc's malloc keeps, and the memory format of a net's tensors.

glibc returns a large block to the kernel when it is freed, and gets it back zeroed, page by page, for the next step:
half the time of a convolutional net on a CPU.

channels_last is faster. But with it torch 2.15 on a CPU (oneDNN's jit_1x1, with AVX-512) writes out of bounds in the
backward pass of some strided 1x1 convolutions.
"""

import ctypes

import torch
from torch import nn

from lockstep.base.config_error import config_error
from lockstep.plan.plan import Plan

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # parameters of `mallopt`
CHANNELS = (1, 10, 16, 32, 64)  # inputs of the convolutions of cnn, lenet and split_cnn on images of one colour


def keep_freed_memory() -> None:
    """Keep freed memory in the process, in place of returning it to the kernel; no-op without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, -1)


def memory_format_of(plan: Plan, net: nn.Module) -> torch.memory_format:
    """Return the plan's memory format; `auto` is channels_last on a GPU, and on a CPU for plain convolutions alone."""
    layers = [layer for layer in net.modules() if max_dim(layer) > 3]
    is_last, on_cpu = plan.memory_format == "channels_last", plan.accelerator == "cpu"
    if is_last and on_cpu and any(map(corrupts_memory, layers)):
        reason = "on a CPU a strided 1x1 convolution of fewer than 16 channels then corrupts memory"
        raise config_error("memory_format", "channels_last", reason, "memory_format=contiguous, or auto")
    if plan.memory_format == "auto":
        is_last = all(is_plain(layer) if on_cpu else max_dim(layer) == 4 for layer in layers)
    return torch.channels_last if is_last else torch.contiguous_format


def max_dim(layer: nn.Module) -> int:
    """Return the largest number of dimensions of a layer's parameters and buffers."""
    tensors = (*layer.parameters(recurse=False), *layer.buffers(recurse=False))
    return max((each.dim() for each in tensors), default=0)


def is_plain(layer: nn.Module) -> bool:
    """Whether a layer is a 3x3 or 5x5 convolution without stride, padding, dilation or groups, like those of `cnn`."""
    if type(layer) is not nn.Conv2d or layer.kernel_size not in ((3, 3), (5, 5)) or layer.in_channels not in CHANNELS:
        return False
    return layer.stride == layer.dilation == (1, 1) and layer.padding == (0, 0) and layer.groups == 1


def corrupts_memory(layer: nn.Module) -> bool:
    """Whether the backward pass of a layer may write out of bounds, by the batch and the number of threads."""
    if not isinstance(layer, nn.Conv2d) or layer.kernel_size != (1, 1) or layer.stride == (1, 1):
        return False
    return layer.in_channels // layer.groups < 16
