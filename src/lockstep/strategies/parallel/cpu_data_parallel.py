"""The steps of torch.nn.DataParallel without GPUs: replicas compute in turn on chunks; and autocast for threads."""

from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from lockstep.base.structures import map_tensors, tensors_in


class CpuDataParallel:
    """Called like a net, on the full batch: tensors are divided, and other arguments go to each replica.

    Replica 0 updates the buffers of the net itself.
    """

    def __init__(self, net: nn.Module, count: int) -> None:
        self.net, self.count = net, count

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        chunks = _chunks((inputs, options), self.count)
        views = {name: parameter.view_as(parameter) for name, parameter in self.net.named_parameters()}
        # backward of `expand` adds the replicas' gradients in the order of the replicas
        copies = {name: view.expand(len(chunks), *view.shape).unbind() for name, view in views.items()}
        buffers = dict(self.net.named_buffers())
        outputs = []
        for replica, (arguments, keywords) in enumerate(chunks):
            state = {name: each[replica] for name, each in copies.items()}
            if replica > 0:
                state |= {name: buffer.clone() for name, buffer in buffers.items()}
            outputs.append(functional_call(self.net, state, arguments, keywords))
        return map_tensors(lambda *tensors: torch.cat(tensors), *outputs)


def _chunks(arguments: Any, count: int) -> list[Any]:
    """Return the arguments of each replica; fewer than `count` for a small batch."""
    tensors = tensors_in(arguments)
    number = len(tensors[0].chunk(count)) if tensors else 1

    def chunk(index: int) -> Any:
        return map_tensors(lambda tensor: tensor.chunk(count)[index] if tensor.dim() else tensor, arguments)

    return [chunk(index) for index in range(number)]


class AutocastWrapper(nn.Module):
    """A net under autocast with one dtype (None: without autocast): DataParallel tells its threads no dtype."""

    def __init__(self, net: nn.Module, device_type: str, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.net, self.device_type, self.dtype = net, device_type, dtype

    def forward(self, *inputs: Any, **options: Any) -> Any:
        with torch.autocast(self.device_type, self.dtype, enabled=self.dtype is not None, cache_enabled=False):
            return self.net(*inputs, **options)
