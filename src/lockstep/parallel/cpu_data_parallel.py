"""DataParallel without GPUs: replicas of a net in threads, each on its slice of the batch.

What torch.nn.DataParallel does on GPUs, step for step, so that its semantics can be seen and tested anywhere: chunk the
batch, hand every replica the parameters, compute side by side, concatenate the outputs, add the replicas' gradients.
"""

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.parallel.global_dropout import GlobalDropout
from lockstep.private_api.torch import DROPOUT
from lockstep.structures import map_tensors


class CpuDataParallel:
    """Called like the net, on the whole batch. Replica 0 has the net's own buffers, which its updates change."""

    def __init__(self, net: nn.Module, count: int, *, in_turn: bool = False) -> None:
        """`in_turn`: replicas may draw random numbers, of which there is one generator: so they can be repeated."""
        self.net, self.count, self.in_turn = net, count, in_turn
        self.copies: list[nn.Module] = []
        self.threads = ThreadPoolExecutor(count, thread_name_prefix="replica")

    def __call__(self, inputs: Tensor) -> Any:
        chunks = inputs.chunk(self.count)
        if len(chunks) == 1:
            return self.net(inputs)
        replicas = self._replicas(len(chunks))
        compute = _with_thread_settings()
        if self.in_turn or (self.net.training and _has_dropout(self.net)):
            gathered = [compute(replica, chunk) for replica, chunk in zip(replicas, chunks, strict=True)]
        else:
            gathered = list(self.threads.map(compute, replicas, chunks))
        return map_tensors(lambda *parts: torch.cat(parts), *gathered)

    def _replicas(self, count: int) -> list[nn.Module]:
        """`count` replicas, all with the parameters and buffers that the net has now."""
        while len(self.copies) < count:
            self.copies.append(_without_parameters(deepcopy(self.net)))
            for module in self.copies[-1].modules():
                if isinstance(module, GlobalDropout):
                    module.replica = len(self.copies) - 1
        own = list(self.net.parameters())
        shared = _Broadcast.apply(count, *own)
        for number, replica in enumerate(self.copies[:count]):
            parameters = dict(zip(own, shared[number * len(own) : (number + 1) * len(own)], strict=True))
            replica.train(self.net.training)
            for module, original in zip(replica.modules(), self.net.modules(), strict=True):
                for name, parameter in original.named_parameters(recurse=False, remove_duplicate=False):
                    vars(module)[name] = parameters[parameter]
                for name, buffer in original.named_buffers(recurse=False, remove_duplicate=False):
                    setattr(module, name, buffer if number == 0 else buffer.clone())
        return self.copies[:count]


class _Broadcast(torch.autograd.Function):
    """The parameters, once for every replica; backward adds the replicas' gradients in the order of the replicas.

    Left to autograd's engine, threads would add them in no fixed order, and float32 sums would differ from run to run.
    """

    @staticmethod
    def forward(ctx: Any, count: int, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.count = count
        return tuple(parameter.view_as(parameter) for _ in range(count) for parameter in parameters)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        each = len(gradients) // ctx.count
        return None, *(_sum(gradients[index::each]) for index in range(each))


def _sum(gradients: tuple[Tensor | None, ...]) -> Tensor | None:
    there = [gradient for gradient in gradients if gradient is not None]
    return sum(there[1:], start=there[0]) if there else None


def _without_parameters(net: nn.Module) -> nn.Module:
    """A replica's parameters are plain attributes, set before each use: they are results, not leaves."""
    for module in net.modules():
        for name in [name for name, _ in module.named_parameters(recurse=False, remove_duplicate=False)]:
            delattr(module, name)
    return net


def _has_dropout(net: nn.Module) -> bool:
    return any(isinstance(module, DROPOUT) and module.p > 0 for module in net.modules())


def _with_thread_settings() -> Any:
    """Run a replica in another thread as it would run in this one: gradients and autocast are settings of a thread."""
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    autocast, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def compute(replica: nn.Module, chunk: Tensor) -> Any:
        with (
            torch.inference_mode(inference),
            torch.set_grad_enabled(gradients),
            torch.autocast("cpu", dtype, enabled=autocast, cache_enabled=False),
        ):
            return replica(chunk)

    return compute
