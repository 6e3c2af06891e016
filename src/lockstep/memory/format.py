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
        ConfigError: the plan asks for channels_last, which the net does not support, or not safely.
    """
    if plan.memory_format == "contiguous":
        return torch.contiguous_format
    on_cpu = plan.accelerator == "cpu"
    volumes = [name for name, module in net.named_modules() if any(tensor.dim() == 5 for tensor in _tensors(module))]
    if plan.memory_format == "auto":
        good = _all_tested(net) if on_cpu else not volumes
        return torch.channels_last if good else torch.contiguous_format
    hint = "memory_format=contiguous, or auto"
    if volumes:
        reason = f"{volumes[0]} has a weight of five dimensions, and torch lays out those of four"
        raise config_error("memory_format", "channels_last", reason, hint)
    if on_cpu and (unsafe := [(name, module) for name, module in net.named_modules() if corrupts(module)]):
        name, shape = unsafe[0][0], shape_of(unsafe[0][1])
        reason = (
            f"on a CPU the backward pass of {name} ({shape.inward} to {shape.outward} channels, 1x1, a stride "
            "above 1, fewer than 16 channels in) writes past its memory"
        )
        raise config_error("memory_format", "channels_last", reason, hint)
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
        affected = any(tensor.dim() > 3 for tensor in _tensors(module))
        if affected and not (type(module) is nn.Conv2d and shape_of(module) in TESTED):
            return False
    return True


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(recurse=False), *module.buffers(recurse=False)]
