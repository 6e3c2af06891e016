"""A LightningModule whose weights are stored in shards, and are full tensors while its own code runs.

FSDP2 has full weights within `forward`. A LightningModule computes anywhere: it calls its layers, reads weights in a
hook, clips gradients. There a shard would be a DTensor, whose `item()` may be of this rank's shard alone, and whose
`data` is set without effect. So all of a module's code runs on full weights and gradients, as under DDP; its changes
are written back to the shards. Between them, and for optimizers, there are shards alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from lockstep.config_error import ConfigError
from lockstep.parallel.tensor_layout import SHARDED_MODULE

BACKWARD, COMPUTING = 1, 2
"""Places at which ranks meet."""


class Reduction(nn.Module):
    """An empty forward pass for FSDP2, whose backward pass reduces the existing gradients to shards."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self) -> Tensor:
        return torch.zeros((), requires_grad=True).clone()


class ShardedModule:
    """Shards the weights of a module in place. The initial weights of all ranks are the same because the seed is.

    shards: the parameters that optimizers step.
    full: the parameters while the module's code runs; else empty.
    scalars: parameters without a dimension, which are not sharded; their gradients are averaged separately.
    stale_attribute: a list or mapping of the module's that still has weights which shards have replaced, or "".
    """

    def __init__(self, module: nn.Module, mesh: DeviceMesh) -> None:
        for parameter in module.parameters():
            parameter.data = parameter.data.contiguous()
        originals = {*module.parameters()}
        self.module = module
        self.scalars = [parameter for parameter in module.parameters() if parameter.dim() == 0]
        self.root: Any = fully_shard(Reduction(module), mesh=mesh, ignored_params={*self.scalars})
        self.root.set_force_sum_reduction_for_comms(True)  # see lockstep.strategies.fsdp
        self.shards = [*module.parameters()]
        self.stale_attribute = _attribute_with(module, originals.difference(self.shards))
        self.optimizers: Sequence[Optimizer] = ()
        self.full: list[nn.Parameter] = []
        self.storage: list[Tensor] = []
        vars(module)[SHARDED_MODULE] = self

    def __deepcopy__(self, _: object) -> None:
        """Return None: a copy of the module is not sharded."""

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Return a context for the module's own code, to be entered by every rank."""
        if self.full:
            yield
            return
        self._meet(COMPUTING)
        self._gather()
        try:
            yield
        finally:
            if self.full:  # a failed optimizer step leaves shards
                self._scatter()

    def backward(self, call: Callable[[], None]) -> None:
        """Run a backward pass by `call`, and average its gradients over ranks, in shards."""
        self._meet(BACKWARD)
        computing = bool(self.full)
        if computing:
            self._scatter()
        scalar_gradients = [scalar.grad for scalar in self.scalars]
        for scalar in self.scalars:
            scalar.grad = None
        self.root.unshard()
        full = [*self.module.parameters()]
        call()
        self._fill_gradients(full)
        self.root().backward()
        self._average_scalars(scalar_gradients)
        if computing:
            self._gather()

    def _meet(self, place: int) -> None:
        """Check that all ranks are at the same place, before they wait for each other's shards there.

        Raises:
            ConfigError: a rank has left out a backward pass.
        """
        places = torch.tensor([place, -place], device=self.shards[0].device)
        dist.all_reduce(places, dist.ReduceOp.MAX)
        if places.sum() != 0:
            raise ConfigError(
                "model: one rank goes backward where another's step has ended without, and each would wait for the "
                "other; write a step that calls self.manual_backward as often on every rank."
            )

    def _fill_gradients(self, full: Sequence[nn.Parameter]) -> None:
        """Set zeros for weights with a gradient on other ranks alone: FSDP2 adds gradients in their order."""
        used = torch.tensor([parameter.grad is not None for parameter in full], device=full[0].device).byte()
        dist.all_reduce(used, dist.ReduceOp.MAX)
        for parameter, is_used in zip(full, used.tolist(), strict=True):
            if is_used and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def _average_scalars(self, accumulated: Sequence[Tensor | None]) -> None:
        for scalar, earlier in zip(self.scalars, accumulated, strict=True):
            if scalar.grad is None:
                scalar.grad = earlier
                continue
            dist.all_reduce(scalar.grad)
            scalar.grad /= dist.get_world_size()
            scalar.grad = scalar.grad if earlier is None else earlier + scalar.grad

    def watch(self, optimizers: Sequence[Optimizer]) -> None:
        """Have the optimizers step on shards, also if the module steps them itself."""
        self.optimizers = optimizers
        for optimizer in optimizers:
            optimizer.register_step_pre_hook(self._before_step)
            optimizer.register_step_post_hook(self._after_step)

    def _before_step(self, *_: Any) -> None:
        self.steps_within = bool(self.full)
        if self.full:
            self._scatter()

    def _after_step(self, *_: Any) -> None:
        if self.steps_within:
            self._gather()

    def _gather(self) -> None:
        """Gather weights and gradients on each rank, and put them into the optimizers too."""
        gradients = [shard.grad for shard in self.shards]
        self.root.unshard()
        self.full = [*self.module.parameters()]
        self.storage = [parameter.data for parameter in self.full]
        for shard, parameter, gradient in zip(self.shards, self.full, gradients, strict=True):
            if parameter is not shard:
                parameter.requires_grad_(shard.requires_grad)
                parameter.grad = None if gradient is None else cast(DTensor, gradient).full_tensor()
        self._replace_in_optimizers(self.shards, self.full)

    @torch.no_grad()
    def _scatter(self) -> None:
        """Write the module's changes of weights, gradients and `requires_grad` back to the shards.

        Weights may have been replaced (`parameter.data = …`): FSDP2 needs them in its own storage.
        """
        for shard, parameter, storage in zip(self.shards, self.full, self.storage, strict=True):
            if parameter is shard:
                continue
            if parameter.data_ptr() != storage.data_ptr():
                storage.copy_(parameter)
                parameter.data = storage
            data = cast(DTensor, shard.data)
            data.to_local().copy_(_distribute(storage, data).to_local())
            shard.requires_grad_(parameter.requires_grad)
            gradient, parameter.grad = parameter.grad, None
            if gradient is None:
                shard.grad = None
            elif shard.grad is None:
                shard.grad = _distribute(gradient, data)
            else:
                cast(DTensor, shard.grad).to_local().copy_(_distribute(gradient, data).to_local())
        self._replace_in_optimizers(self.full, self.shards)
        self.full, self.storage = [], []
        self.root.reshard()

    def _replace_in_optimizers(self, parameters: Sequence[nn.Parameter], others: Sequence[nn.Parameter]) -> None:
        """Replace parameters in the optimizers' groups, so that hooks and `clip_gradients` see the module's."""
        replaced = dict(zip(parameters, others, strict=True))
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["params"][:] = [replaced.get(parameter, parameter) for parameter in group["params"]]


def _attribute_with(module: nn.Module, parameters: AbstractSet[nn.Parameter]) -> str:
    """Return the name of a list, tuple, set or mapping of the module's that has one of these parameters, or ""."""
    for prefix, child in module.named_modules():
        for name, value in vars(child).items():
            values = value.values() if isinstance(value, Mapping) else value
            if isinstance(value, list | tuple | set | Mapping) and any(
                isinstance(each, nn.Parameter) and each in parameters for each in values
            ):
                return f"{prefix}.{name}" if prefix else name
    return ""


def _distribute(full_tensor: Tensor, like: DTensor) -> DTensor:
    """Return a tensor that every rank has in the layout of a DTensor."""
    return distribute_tensor(full_tensor, like.device_mesh, like.placements, src_data_rank=None)
