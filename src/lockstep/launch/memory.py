"""How a rank uses memory: what glibc's malloc keeps, and the memory format of a net's tensors.

glibc returns a large block to the kernel as soon as it is freed, and gets it back, page by page and zeroed, for the
same tensor of the next step: half the time of a convolutional net on a CPU.

The format channels_last is faster; on a CPU `auto` uses it for tested convolutions only.
With channels_last, torch 2.15 on a CPU (oneDNN's jit_1x1, with AVX-512) writes out of bounds in the backward pass of
some convolutions. The process crashes, or continues with corrupted memory. Contiguous nets are not affected.
"""

import ctypes
import sys

import torch
from torch import nn

from lockstep.base.config_error import config_error
from lockstep.plan.plan import Plan

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # parameters of `mallopt`; see its manual page, which also has the defaults
DEFAULT_TRIM_THRESHOLD, DEFAULT_MMAP_MAX = 128 * 1024, 65536

TESTED = {
    *((1, 16, 3), (16, 32, 3), (32, 64, 3), (64, 128, 3)),  # cnn
    *((1, 10, 5), (10, 20, 5)),  # lenet, split_cnn
}
"""Channels and kernel of plain convolutions (no stride, padding, dilation or groups) that are tested on CPUs: channels
last against contiguous float64, both passes (tests/test_memory_format.py). To add one, test it.
"""


def set_malloc_trim(enabled: bool) -> None:
    """Return freed memory to the kernel by glibc's defaults, or keep it in the process; no-op without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_MAX, DEFAULT_MMAP_MAX if enabled else 0)
        mallopt(M_TRIM_THRESHOLD, DEFAULT_TRIM_THRESHOLD if enabled else -1)


def memory_format_of(plan: Plan, net: nn.Module) -> torch.memory_format:
    """Return the plan's memory format, or with `auto` one that suits the net; reject an unsafe one by ConfigError."""
    if plan.memory_format == "contiguous":
        return torch.contiguous_format
    on_cpu = plan.accelerator == "cpu"
    if plan.memory_format == "auto":
        has_volumes = any(tensor.dim() == 5 for tensor in (*net.parameters(), *net.buffers()))
        good = _all_tested(net) if on_cpu else not has_volumes
        return torch.channels_last if good else torch.contiguous_format
    unsafe = next((name for name, module in net.named_modules() if corrupts(module)), None)
    if on_cpu and unsafe is not None:
        reason = f"on a CPU the backward pass of {unsafe} (1x1, strided, fewer than 16 channels) corrupts memory"
        raise config_error("memory_format", "channels_last", reason, "memory_format=contiguous, or auto")
    return torch.channels_last


def corrupts(module: nn.Module) -> bool:
    """Whether the module may write out of bounds; it depends on the batch and the number of threads."""
    return (
        isinstance(module, nn.Conv2d)
        and module.kernel_size == (1, 1)
        and max(module.stride) > 1
        and module.in_channels // module.groups < 16
    )


def is_tested(module: nn.Module) -> bool:
    """Whether the module is a convolution of TESTED."""
    return (
        type(module) is nn.Conv2d
        and module.stride == module.dilation == (1, 1)
        and module.padding == (0, 0)
        and module.groups == 1
        and module.kernel_size[0] == module.kernel_size[1]
        and (module.in_channels, module.out_channels, module.kernel_size[0]) in TESTED
    )


def _all_tested(net: nn.Module) -> bool:
    """Whether every tensor of four or more dimensions belongs to a tested convolution."""
    return all(
        tensor.dim() < 4 or is_tested(module)
        for module in net.modules()
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False))
    )
