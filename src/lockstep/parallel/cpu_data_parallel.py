"""DataParallel without GPUs: replicas of a net in threads, each on its slice of the batch.

These are the steps of torch.nn.DataParallel, so that they can be tested anywhere: chunk the batch, give each replica
the parameters, compute in parallel, concatenate the outputs, add the gradients of all replicas.
"""

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from lockstep.parallel.autocast import with_thread_settings
from lockstep.parallel.global_dropout import GlobalDropout
from lockstep.private_api.torch import DROPOUT
from lockstep.structures import map_tensors


class CpuDataParallel:
    """Called like a net, on the full batch. Replica 0 updates the buffers of the net itself.

    in_turn: replicas run one after the other, since they may draw random numbers from the one generator.
    """

    def __init__(self, net: nn.Module, count: int, *, in_turn: bool = False) -> None:
        self.net, self.count, self.in_turn = net, count, in_turn
        self.copies: list[nn.Module] = []
        self.threads = ThreadPoolExecutor(count, thread_name_prefix="replica")

    def __call__(self, inputs: Tensor) -> Any:
        chunks = inputs.chunk(self.count)
        if len(chunks) == 1:
            return self.net(inputs)
        states, copies = self._states(len(chunks)), self._copies(len(chunks))
        has_dropout = any(isinstance(module, DROPOUT) and module.p > 0 for module in self.net.modules())
        if self.in_turn or (self.net.training and has_dropout):
            outputs = [*map(functional_call, copies, states, chunks)]
        else:
            outputs = [*self.threads.map(with_thread_settings(functional_call), copies, states, chunks)]
        return map_tensors(lambda *tensors: torch.cat(tensors), *outputs)

    def _states(self, count: int) -> list[dict[str, Tensor]]:
        """Return the parameters and buffers for each replica."""
        parameters, buffers = dict(self.net.named_parameters()), dict(self.net.named_buffers())
        shared = iter(_Broadcast.apply(count, *parameters.values()))
        return [
            {name: next(shared) for name in parameters}
            | {name: buffer.clone() if replica else buffer for name, buffer in buffers.items()}
            for replica in range(count)
        ]

    def _copies(self, count: int) -> list[nn.Module]:
        """Return a copy of the net for each replica, whose parameters and buffers are replaced when it is called."""
        while len(self.copies) < count:
            self.copies.append(deepcopy(self.net))
            for module in self.copies[-1].modules():
                if isinstance(module, GlobalDropout):
                    module.replica = len(self.copies) - 1
        for copy in self.copies[:count]:
            for module, original in zip(copy.modules(), self.net.modules(), strict=True):
                module.training = original.training
        return self.copies[:count]


class _Broadcast(torch.autograd.Function):
    """Returns the parameters once for each replica; backward adds the replicas' gradients in the order of the replicas.

    Autograd's threads would add them in any order, and float32 sums would differ from run to run.
    """

    @staticmethod
    def forward(ctx: Any, count: int, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.count = count
        return tuple(parameter.view_as(parameter) for _ in range(count) for parameter in parameters)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        stride = len(gradients) // ctx.count
        return None, *(_sum(gradients[index::stride]) for index in range(stride))


def _sum(gradients: tuple[Tensor | None, ...]) -> Tensor | None:
    present = [gradient for gradient in gradients if gradient is not None]
    return sum(present[1:], start=present[0]) if present else None
