"""A LightningModule whose weights lie in shards, and are full tensors while its own code runs.

FSDP2 has full weights within `forward`. A LightningModule computes anywhere: it calls its layers, reads weights in a
hook, clips gradients. A shard in that place is a DTensor, whose `item()` may be of this rank's shard alone, and whose
`data` is set without effect. So all of a module's own code runs on full weights and gradients, as under DDP; what it
changes in them goes back to the shards. Between them, and for optimizers, there are shards alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from lockstep.config_error import ConfigError

BACKWARD, COMPUTING = 1, 2
"""Where ranks meet."""


class Reduction(nn.Module):
    """What FSDP2 takes for a forward pass: the backward pass behind it sums in shards what gradients there are."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self) -> Tensor:
        return torch.zeros((), requires_grad=True).clone()


class ShardedModule:
    """`shards` are the parameters that optimizers know; `full`, those while the module computes.

    A parameter of no dimension is no shard: each rank has all of it, and its gradient is averaged by itself.
    `kept_elsewhere` names a list or mapping of the module's with weights that shards have replaced; empty without one.
    """

    def __init__(self, module: nn.Module, mesh: DeviceMesh) -> None:
        """In place. Nobody sends the first weights: they are the same by the same seed."""
        for parameter in module.parameters():
            parameter.data = parameter.data.contiguous()
        first = {*module.parameters()}
        self.scalars = [parameter for parameter in module.parameters() if parameter.dim() == 0]
        self.module = module
        self.root: Any = fully_shard(Reduction(module), mesh=mesh, ignored_params={*self.scalars})
        self.root.set_force_sum_reduction_for_comms(True)  # see lockstep.strategies.fsdp
        self.shards = [*module.parameters()]
        self.kept_elsewhere = _keeper(module, first.difference(self.shards))
        self.optimizers: Sequence[Optimizer] = ()
        self.full: list[nn.Parameter] = []
        self.memory: list[Tensor] = []
        SHARDED[module] = self

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Around the module's own code, on every rank."""
        if self.full:
            yield
            return
        self._meet(COMPUTING)
        self._gather()
        try:
            yield
        finally:
            if self.full:  # not where an optimizer's step failed
                self._scatter()

    def backward(self, call: Callable[[], None]) -> None:
        """A backward pass, by `call`: ends with the mean over ranks of the gradients, in shards."""
        self._meet(BACKWARD)
        computing = bool(self.full)
        if computing:
            self._scatter()
        before = [scalar.grad for scalar in self.scalars]
        for scalar in self.scalars:
            scalar.grad = None
        self.root.unshard()
        full = [*self.module.parameters()]
        call()
        self._fill(full)
        self.root().backward()
        self._average_scalars(before)
        if computing:
            self._gather()

    def _meet(self, place: int) -> None:
        """See that all ranks have come to the same place, before they wait for each other's shards in it.

        Raises:
            ConfigError: one has left out a backward pass.
        """
        places = torch.tensor([place, -place], device=self.shards[0].device)
        dist.all_reduce(places, dist.ReduceOp.MAX)
        if places.sum() != 0:
            raise ConfigError(
                "model: one rank goes backward where another's step has ended without, and each would wait for the "
                "other; write a step that calls self.manual_backward as often on every rank."
            )

    def _fill(self, full: Sequence[nn.Parameter]) -> None:
        """Fill in zeros for weights with a gradient on other ranks alone: FSDP2 adds gradients in their order."""
        used = torch.tensor([parameter.grad is not None for parameter in full], device=full[0].device).byte()
        dist.all_reduce(used, dist.ReduceOp.MAX)
        for parameter, anywhere in zip(full, used.tolist(), strict=True):
            if anywhere and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def watch(self, optimizers: Sequence[Optimizer]) -> None:
        """These step on shards, also where the module steps them itself."""
        self.optimizers = optimizers
        for optimizer in optimizers:
            optimizer.register_step_pre_hook(self._before_step)
            optimizer.register_step_post_hook(self._after_step)

    def _before_step(self, *_: Any) -> None:
        self.stepping_within = bool(self.full)
        if self.full:
            self._scatter()

    def _after_step(self, *_: Any) -> None:
        if self.stepping_within:
            self._gather()

    def _average_scalars(self, before: Sequence[Tensor | None]) -> None:
        for scalar, earlier in zip(self.scalars, before, strict=True):
            if scalar.grad is not None:
                dist.all_reduce(scalar.grad)
                scalar.grad /= dist.get_world_size()
                scalar.grad = scalar.grad if earlier is None else earlier + scalar.grad
            else:
                scalar.grad = earlier

    def _gather(self) -> None:
        """Gather weights and gradients on each rank, and put them into the optimizers too."""
        gradients = [shard.grad for shard in self.shards]
        self.root.unshard()
        self.full = [*self.module.parameters()]
        self.memory = [parameter.data for parameter in self.full]
        for shard, parameter, gradient in zip(self.shards, self.full, gradients, strict=True):
            if parameter is not shard:
                parameter.requires_grad_(shard.requires_grad)
                parameter.grad = None if gradient is None else cast(DTensor, gradient).full_tensor()
        self._exchange(self.shards, self.full)

    @torch.no_grad()
    def _scatter(self) -> None:
        """Put what the module has changed of its weights, gradients and `requires_grad` back into shards.

        Weights may have been replaced (`parameter.data = …`): FSDP2 would not know the new memory.
        """
        for shard, parameter, memory in zip(self.shards, self.full, self.memory, strict=True):
            if parameter is shard:
                continue
            if parameter.data_ptr() != memory.data_ptr():
                memory.copy_(parameter)
                parameter.data = memory
            data = cast(DTensor, shard.data)
            data.to_local().copy_(_local_shard(memory, data))
            shard.requires_grad_(parameter.requires_grad)
            gradient, parameter.grad = parameter.grad, None
            if gradient is None:
                shard.grad = None
            elif shard.grad is None:
                shard.grad = distribute_tensor(gradient, data.device_mesh, data.placements, src_data_rank=None)
            else:
                cast(DTensor, shard.grad).to_local().copy_(_local_shard(gradient, data))
        self._exchange(self.full, self.shards)
        self.full, self.memory = [], []
        self.root.reshard()

    def _exchange(self, before: Sequence[nn.Parameter], after: Sequence[nn.Parameter]) -> None:
        """Replace parameters in the optimizers' groups, so that hooks and `clip_gradients` see what the module has."""
        replaced = dict(zip(before, after, strict=True))
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["params"][:] = [replaced.get(parameter, parameter) for parameter in group["params"]]


def _keeper(module: nn.Module, replaced: AbstractSet[nn.Parameter]) -> str:
    for prefix, child in module.named_modules():
        for name, value in vars(child).items():
            is_list = isinstance(value, list | tuple | set)
            values = value.values() if isinstance(value, Mapping) else value if is_list else ()
            if any(isinstance(each, nn.Parameter) and each in replaced for each in values):
                return f"{prefix}.{name}" if prefix else name
    return ""


def _local_shard(full_tensor: Tensor, shard: DTensor) -> Tensor:
    """Return this rank's rows of a tensor that every rank has."""
    return distribute_tensor(full_tensor, shard.device_mesh, shard.placements, src_data_rank=None).to_local()


SHARDED: "WeakKeyDictionary[nn.Module, ShardedModule]" = WeakKeyDictionary()
"""By their module."""
