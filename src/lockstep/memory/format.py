"""In which memory format a net computes: channels last is faster, and on a CPU it is taken where it was tested.

With the channels last torch 2.15 on a CPU (oneDNN's jit_1x1, with AVX-512) writes past its memory in the backward pass
of some convolutions. The process crashes, or continues with corrupted memory. Contiguous nets are not affected.
"""

from typing import NamedTuple

import torch
from torch import nn

from lockstep.config_error import config_error
from lockstep.plan import Plan


class Shape(NamedTuple):
    """What distinguishes convolutions."""

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
    """The memory format for a net: as the plan says, or by what the net is made of.

    Raises:
        ConfigError: channels_last is asked for, and the net cannot have it, or not safely.
    """
    if plan.memory_format == "contiguous":
        return torch.contiguous_format
    on_cpu = plan.accelerator == "cpu"
    if plan.memory_format == "auto":
        good = _all_tested(net) if on_cpu else not _volumes(net)
        return torch.channels_last if good else torch.contiguous_format
    instead = "memory_format=contiguous, or auto"
    if _volumes(net):
        why = f"{_volumes(net)[0]} has a weight of five dimensions, and torch lays out those of four"
        raise config_error("memory_format", "channels_last", why, instead)
    if on_cpu and (unsafe := [name for name, module in net.named_modules() if corrupts(module)]):
        shape = shape_of(net.get_submodule(unsafe[0]))
        why = (
            f"on a CPU the backward pass of {unsafe[0]} ({shape.inward} to {shape.outward} channels, 1x1, a stride "
            "above 1, fewer than 16 channels in) writes past its memory"
        )
        raise config_error("memory_format", "channels_last", why, instead)
    return torch.channels_last


def corrupts(module: nn.Module) -> bool:
    """Whether it is of the class that writes past its memory; which batches do, and with how many threads, varies."""
    if not isinstance(module, nn.Conv2d):
        return False
    shape = shape_of(module)
    return shape.kernel == (1, 1) and max(shape.stride) > 1 and shape.inward // shape.groups < 16


def shape_of(module: nn.Module) -> Shape:
    """Of an nn.Conv2d."""
    assert isinstance(module, nn.Conv2d)
    ends = module.in_channels, module.out_channels
    return Shape(*ends, module.kernel_size, module.stride, module.padding, module.dilation, module.groups)


def _all_tested(net: nn.Module) -> bool:
    """Whether all that channels_last would lay out, tensors of four dimensions and more, is of tested convolutions."""
    for module in net.modules():
        laid_out = any(tensor.dim() > 3 for tensor in _own_tensors(module))
        if laid_out and not (type(module) is nn.Conv2d and shape_of(module) in TESTED):
            return False
    return True


def _volumes(net: nn.Module) -> list[str]:
    """Modules with tensors of five dimensions, which channels_last does not fit."""
    return [name for name, module in net.named_modules() if any(own.dim() == 5 for own in _own_tensors(module))]


def _own_tensors(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(recurse=False), *module.buffers(recurse=False)]
