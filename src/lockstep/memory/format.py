"""Choose a net's memory format: channels_last is faster; on a CPU `auto` uses it for tested convolutions only.

With channels_last, torch 2.15 on a CPU (oneDNN's jit_1x1, with AVX-512) writes out of bounds in the backward pass of
some convolutions. The process crashes, or continues with corrupted memory. Contiguous nets are not affected.
"""

from typing import NamedTuple

import torch
from torch import nn

from lockstep.config_error import config_error
from lockstep.plan import Plan


class Shape(NamedTuple):
    """The arguments of an nn.Conv2d."""

    inward: int
    outward: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] | str = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1


TESTED = {
    *(Shape(1, 16, (3, 3)), Shape(16, 32, (3, 3)), Shape(32, 64, (3, 3)), Shape(64, 128, (3, 3))),  # cnn
    *(Shape(1, 10, (5, 5)), Shape(10, 20, (5, 5))),  # lenet, split_cnn
}
"""On CPUs, channels last against contiguous float64, both passes (tests/test_memory_format.py). To add one, test it."""


def memory_format_of(plan: Plan, net: nn.Module) -> torch.memory_format:
    """Return the memory format for a net: the plan's, or with `auto` one that suits the net's layers.

    Raises:
        ConfigError: the plan asks for channels_last, which is not safe for the net.
    """
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
    if not isinstance(module, nn.Conv2d):
        return False
    shape = shape_of(module)
    return shape.kernel == (1, 1) and max(shape.stride) > 1 and shape.inward // shape.groups < 16


def shape_of(module: nn.Module) -> Shape:
    """Return the shape of an nn.Conv2d."""
    assert isinstance(module, nn.Conv2d)
    channels = module.in_channels, module.out_channels
    return Shape(*channels, module.kernel_size, module.stride, module.padding, module.dilation, module.groups)


def _all_tested(net: nn.Module) -> bool:
    """Whether every tensor of four or more dimensions belongs to a tested convolution."""
    for module in net.modules():
        tensors = (*module.parameters(recurse=False), *module.buffers(recurse=False))
        is_tested = type(module) is nn.Conv2d and shape_of(module) in TESTED
        if not is_tested and any(tensor.dim() > 3 for tensor in tensors):
            return False
    return True
