"""The storage of parameters, gradients and optimizer states on ranks: full tensors, or shards (DTensor) under FSDP2.

Some functions communicate: all ranks must call them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.base.private_api.torch import norms
from lockstep.base.structures import map_tensors, tensors_of


def is_sharded(tensor: Any) -> bool:
    """Whether it is a DTensor, whose package is slow to import and so is not imported here."""
    return hasattr(tensor, "full_tensor")


def local_shard(tensor: Any) -> Tensor:
    """Return the part of a tensor that this rank stores."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[no-any-return]


def full_tensor(tensor: Any) -> Tensor:
    """Return all of a tensor, on every rank."""
    return tensor.full_tensor().detach() if is_sharded(tensor) else tensor  # type: ignore[no-any-return]


def shard_like(full: Tensor, like: Any) -> Tensor:
    """Return a full tensor, which every rank has, on the device and in the layout of `like`."""
    full = full.to(like.device)
    if not is_sharded(like):
        return full
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(full, like.device_mesh, like.placements, src_data_rank=None)


def gradient_norms(gradients: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the norm of each gradient, whose shards add their squared norms over ranks, in one message."""
    if not any(map(is_sharded, gradients)):
        return norms(gradients)
    squares = torch.stack([*norms([local_shard(gradient) for gradient in gradients])]).double().square()
    dist.all_reduce(squares)
    return squares.sqrt().unbind()


def full_state_dict(net: nn.Module) -> dict[str, Any]:
    """Return the state_dict of a net, with full tensors."""
    state = net.state_dict()
    for name, value in state.items():
        state[name] = full_tensor(value)
    return state


def load_full_state_dict(net: nn.Module, state: Mapping[str, Any], strict: bool = True) -> None:
    """Load a state_dict that has full tensors."""
    likes = tensors_of(net.state_dict())
    shards = {name: shard_like(state[name], like) for name, like in likes.items() if name in state}
    net.load_state_dict({**state, **shards} if any(map(is_sharded, likes.values())) else state, strict=strict)


def full_optimizer_state(optimizer: Optimizer) -> dict[str, Any]:
    """Return the state_dict of an optimizer, with full tensors."""
    return map_tensors(full_tensor, optimizer.state_dict())  # type: ignore[no-any-return]


def load_optimizer_state(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Load an optimizer's state_dict; full tensors of the shape of their parameter are sharded like it."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if any(map(is_sharded, parameters)):
        entries = {index: _sharded(entry, parameters[index]) for index, entry in state["state"].items()}
        state = {**state, "state": entries}
    if state:  # Lightning's is empty if a module configures no optimizer
        optimizer.load_state_dict({**state})


def _sharded(entry: Any, like: Tensor) -> Any:
    return map_tensors(lambda full: shard_like(full, like) if full.shape == like.shape else full, entry)
