"""A LightningModule whose weights lie in shards, and are whole while its own code runs.

FSDP2 has weights whole within `forward`. A LightningModule computes anywhere: it calls layers of its own, reads weights
in a hook, clips gradients. A shard in that place is a DTensor, whose `item()` may be of this rank's part alone, and
whose `data` is set without effect. So all of a module's own code runs on whole weights and gradients, as under DDP;
what it changes in them goes back to the shards. Between them, and for optimizers, there are shards alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any, Protocol, cast
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


class Root(Protocol):
    """What is needed of `Reduction` once it is an FSDPModule."""

    def __call__(self) -> Tensor: ...
    def unshard(self) -> None: ...
    def reshard(self) -> None: ...


class ShardedModule:
    """`held` are the parameters that a rank keeps, of which optimizers know; `whole` those while the module computes.

    A parameter of no dimension is no shard: each rank has all of it, and its gradient is averaged by itself.
    `kept_elsewhere` names a list or mapping of the module's with weights that shards have replaced; empty without one.
    """

    def __init__(self, module: nn.Module, mesh: DeviceMesh) -> None:
        """In place. Nobody sends the first weights: they are the same by the same seed."""
        for own in module.parameters():
            if not own.is_contiguous():
                own.data = own.data.contiguous()
        first = {*module.parameters()}
        self.scalars = [own for own in module.parameters() if own.dim() == 0]
        root = fully_shard(Reduction(module), mesh=mesh, ignored_params={*self.scalars})
        root.set_force_sum_reduction_for_comms(True)  # see lockstep.strategies.fsdp
        self.module, self.root = module, cast(Root, root)
        self.held = [*module.parameters()]
        self.kept_elsewhere = _keeper(module, first.difference(self.held))
        self.optimizers: Sequence[Optimizer] = ()
        self.whole: list[nn.Parameter] = []
        self.memory: list[Tensor] = []
        SHARDED[module] = self

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Around the module's own code, on every rank."""
        if self.whole:
            yield
            return
        self._meet(COMPUTING)
        self._gather()
        try:
            yield
        finally:
            if self.whole:  # not where an optimizer's step failed
                self._scatter()

    def backward(self, call: Callable[[], None]) -> None:
        """A backward pass, by `call`: ends with the mean over ranks of the gradients, in shards."""
        self._meet(BACKWARD)
        computing = bool(self.whole)
        if computing:
            self._scatter()
        before = [own.grad for own in self.scalars]
        for own in self.scalars:
            own.grad = None
        self.root.unshard()
        whole = [*self.module.parameters()]
        call()
        self._fill(whole)
        self.root().backward()  # type: ignore[no-untyped-call]
        self._average_scalars(before)
        if computing:
            self._gather()

    def _meet(self, place: int) -> None:
        """See that all ranks have come to the same place, before they wait for each other's shards in it.

        Raises:
            ConfigError: one has left out a backward pass.
        """
        places = torch.tensor([place, -place], device=self.held[0].device)
        dist.all_reduce(places, dist.ReduceOp.MAX)
        if places.sum() != 0:
            raise ConfigError(
                "model: one rank goes backward where another's step has ended without, and each would wait for the "
                "other; write a step that calls self.manual_backward as often on every rank."
            )

    def _fill(self, whole: Sequence[nn.Parameter]) -> None:
        """Zeros for weights with a gradient on other ranks alone: FSDP2 adds what ranks have, whatever it is of."""
        found = torch.tensor([own.grad is not None for own in whole], dtype=torch.uint8, device=whole[0].device)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        for own, anywhere in zip(whole, found.tolist(), strict=True):
            if anywhere and own.grad is None:
                own.grad = torch.zeros_like(own)

    def watch(self, optimizers: Sequence[Optimizer]) -> None:
        """These step on shards, also where the module steps them itself."""
        self.optimizers = optimizers
        for optimizer in optimizers:
            optimizer.register_step_pre_hook(self._before_step)
            optimizer.register_step_post_hook(self._after_step)

    def _before_step(self, *_: Any) -> None:
        self.stepping_within = bool(self.whole)
        if self.whole:
            self._scatter()

    def _after_step(self, *_: Any) -> None:
        if self.stepping_within:
            self._gather()

    def _average_scalars(self, before: Sequence[Tensor | None]) -> None:
        for own, earlier in zip(self.scalars, before, strict=True):
            if own.grad is not None:
                dist.all_reduce(own.grad)
                own.grad /= dist.get_world_size()
                own.grad = own.grad if earlier is None else earlier + own.grad
            else:
                own.grad = earlier

    def _gather(self) -> None:
        """Weights and gradients, whole on each rank, and in the optimizers too."""
        gradients = [own.grad for own in self.held]
        self.root.unshard()
        self.whole = [*self.module.parameters()]
        self.memory = [own.data for own in self.whole]
        for held, own, gradient in zip(self.held, self.whole, gradients, strict=True):
            if own is not held:
                own.requires_grad_(held.requires_grad)
                own.grad = None if gradient is None else _full(gradient)
        self._exchange(self.held, self.whole)

    @torch.no_grad()
    def _scatter(self) -> None:
        """What the module has changed of its weights, gradients and `requires_grad`, back into shards.

        Weights may have been replaced (`own.data = …`): FSDP2 would not know the new memory.
        """
        for held, own, memory in zip(self.held, self.whole, self.memory, strict=True):
            if own is held:
                continue
            if own.data_ptr() != memory.data_ptr():
                memory.copy_(own)
                own.data = memory
            shard = cast(DTensor, held.data)
            shard.to_local().copy_(_part(memory, shard))
            held.requires_grad_(own.requires_grad)
            gradient, own.grad = own.grad, None
            if gradient is None:
                held.grad = None
            elif held.grad is None:
                held.grad = distribute_tensor(gradient, shard.device_mesh, shard.placements, src_data_rank=None)
            else:
                cast(DTensor, held.grad).to_local().copy_(_part(gradient, shard))
        self._exchange(self.whole, self.held)
        self.whole, self.memory = [], []
        self.root.reshard()

    def _exchange(self, there: Sequence[nn.Parameter], others: Sequence[nn.Parameter]) -> None:
        """In the optimizers' groups, so that hooks and `clip_gradients` find what the module has."""
        other = dict(zip(there, others, strict=True))
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["params"][:] = [other.get(own, own) for own in group["params"]]


def _keeper(module: nn.Module, replaced: AbstractSet[nn.Parameter]) -> str:
    for prefix, part in module.named_modules():
        for name, own in vars(part).items():
            values = own.values() if isinstance(own, Mapping) else own if isinstance(own, list | tuple | set) else ()
            if any(isinstance(each, nn.Parameter) and each in replaced for each in values):
                return f"{prefix}.{name}" if prefix else name
    return ""


def _full(gradient: Tensor) -> Tensor:
    return gradient.full_tensor() if isinstance(gradient, DTensor) else gradient


def _part(whole: Tensor, shard: DTensor) -> Tensor:
    """This rank's rows, as torch.chunk divides them; the last ranks may have none."""
    chunks = whole.chunk(shard.device_mesh.size())
    rank = shard.device_mesh.get_local_rank()
    return chunks[rank] if rank < len(chunks) else whole[:0]


SHARDED: "WeakKeyDictionary[nn.Module, ShardedModule]" = WeakKeyDictionary()
"""By their module."""
