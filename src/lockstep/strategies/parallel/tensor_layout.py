"""The storage of parameters, gradients and optimizer states on ranks; nobody else asks how a tensor is stored.

Every rank has the full tensor, or a part of it as the placements of a DTensor say, or a few ranks alone have it: the
`owners` of a parameter, which is on the meta device elsewhere. Some functions communicate: all ranks must call them.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.base.messages import all_gather_json, gather_values, group_device
from lockstep.base.optimizers import IMPLEMENTATION
from lockstep.base.private_api.torch import norms
from lockstep.base.structures import map_tensors, tensors_of


def is_sharded(tensor: Any) -> bool:
    """Whether it is a DTensor, whose package is slow to import and so is not imported here."""
    return hasattr(tensor, "full_tensor")


def owners_of(tensor: Any) -> Sequence[int]:
    """Return the ranks that alone have a parameter; none if all ranks have it, or a shard."""
    return getattr(tensor, "owners", ())


def is_here(parameter: Any) -> bool:
    """Whether this rank has a parameter, or a part of it."""
    return not (owners := owners_of(parameter)) or dist.get_rank() in owners


def copied_part(parameter: Any) -> str | None:
    """Return a name for the part of a parameter that this rank has, which ranks with a copy of it return, too.

    It is "" for all of a parameter, on every rank, and None for a part that no other rank has, or on a nameless mesh.
    """
    if owners := owners_of(parameter):
        return f"on {', '.join(map(str, owners))}" if len(owners) > 1 else None
    if not is_sharded(parameter):
        return ""
    mesh = parameter.device_mesh
    if mesh.mesh_dim_names is None:
        return None
    places = zip(mesh.mesh_dim_names, mesh.shape, mesh.get_coordinate(), parameter.placements, strict=True)
    divided = [(name, size, place) for name, size, place, kind in places if size > 1 and not kind.is_replicate()]
    if math.prod(size for _, size, _ in divided) == dist.get_world_size():
        return None
    return ", ".join(f"{name}={place}" for name, _, place in divided)


def counts_here(parameter: Any) -> bool:
    """Whether this rank stands for its part of a parameter in sums over all ranks: the first that has this part."""
    if not is_sharded(parameter):
        return dist.get_rank() == (owners_of(parameter) or (0,))[0]
    mesh = parameter.device_mesh  # with those of other ranks it may be one of several: that of rank 0 counts
    places = zip(mesh.get_coordinate(), parameter.placements, strict=True)
    return bool((mesh.mesh == 0).any()) and not any(place for place, kind in places if kind.is_replicate())


def local_shard(tensor: Any) -> Tensor:
    """Return the part of a tensor that this rank stores."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[no-any-return]


def full_tensor(tensor: Any) -> Tensor:
    """Return all of a tensor, on every rank."""
    if owners_of(tensor):
        return _of_owner(tensor, tensor)
    return tensor.full_tensor().detach() if is_sharded(tensor) else tensor  # type: ignore[no-any-return]


def full_gradients(net: nn.Module) -> dict[str, Tensor]:
    """Return all of each gradient, on every rank, by the name of its parameter."""
    parameters = dict(net.named_parameters())
    names = [name for name, parameter in parameters.items() if parameter.grad is not None]
    if not any(map(owners_of, parameters.values())):
        return {name: full_tensor(parameters[name].grad) for name in names}
    names = [*dict.fromkeys(name for rank in all_gather_json(names) for name in rank)]
    return {name: _of_owner(parameters[name], parameters[name].grad) for name in names}


def _of_owner(parameter: Any, tensor: Any) -> Tensor:
    """Return a tensor of a parameter's shape that the parameter's first owner has, on every rank."""
    owner, *_ = owners_of(parameter)
    here = dist.get_rank() == owner
    device = group_device()
    full = tensor.detach().to(device, copy=True) if here else torch.empty_like(parameter, device=device)
    dist.broadcast(full, src=owner)
    return full.detach()


def shard_like(full: Tensor, like: Any) -> Tensor:
    """Return a full tensor, which every rank has, on the device and in the layout of `like`."""
    full = full.to(like.device)
    if not is_sharded(like):
        return full
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(full, like.device_mesh, like.placements, src_data_rank=None)


def gradient_norms(parameters: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the norm of each parameter's gradient; ranks add the squared norms of their parts, in one message."""
    if not any(is_sharded(each) or owners_of(each) for each in parameters):
        return norms([each.grad for each in parameters if each.grad is not None])
    squares = torch.zeros(len(parameters), dtype=torch.float64, device=group_device())
    gradients = {n: each.grad for n, each in enumerate(parameters) if each.grad is not None and counts_here(each)}
    if gradients:
        parts = torch.stack([*norms([*map(local_shard, gradients.values())])]).double().square()
        squares[[*gradients]] = parts.to(squares.device)
    dist.all_reduce(squares)
    return squares.sqrt().unbind()


def clip_gradients(parameters: Sequence[Tensor], limit: float) -> None:
    """Clip the norm of all gradients together, also of those that are stored in different ways."""
    gradients = [each.grad for each in parameters if each.grad is not None]
    if len({getattr(each, "device_mesh", None) for each in gradients}) < 2 and not any(map(owners_of, parameters)):
        nn.utils.clip_grad_norm_(parameters, limit)
        return
    total = torch.stack([*gradient_norms(parameters)]).norm()
    for gradient in gradients:
        local_shard(gradient).mul_((limit / (total + 1e-6)).clamp(max=1))


def full_state_dict(net: nn.Module) -> dict[str, Any]:
    """Return the state_dict of a net, with full tensors."""
    state, parameters = net.state_dict(), dict(net.named_parameters(remove_duplicate=False))
    for name, value in state.items():
        state[name] = full_tensor(parameters[name] if owners_of(parameters.get(name)) else value)
    return state


def load_full_state_dict(net: nn.Module, state: Mapping[str, Any], strict: bool = True) -> None:
    """Load a state_dict that has full tensors."""
    likes = tensors_of(net.state_dict())
    shards = {name: shard_like(state[name], like) for name, like in likes.items() if name in state}
    net.load_state_dict(
        {**state, **shards} if any(is_sharded(each) or each.is_meta for each in likes.values()) else state,
        strict=strict,
    )


def full_optimizer_state(optimizer: Optimizer) -> dict[str, Any]:
    """Return the state_dict of an optimizer, with full tensors."""
    state: dict[str, Any] = map_tensors(full_tensor, optimizer.state_dict())
    parameters = parameters_of(optimizer)
    if any(map(owners_of, parameters)):  # rank 0, which alone saves them, gets the others'
        first = [(owners_of(each) or (0,))[0] for each in parameters]
        entries = {index: entry for index, entry in state["state"].items() if first[index] == dist.get_rank()}
        by_index = {index: entry for rank in gather_values(entries) for index, entry in rank.items()}
        state["state"] = dict(sorted(by_index.items()))
    return state


def load_optimizer_state(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Load an optimizer's state_dict; full tensors of the shape of their parameter are sharded like it."""
    parameters = parameters_of(optimizer)
    if any(is_sharded(each) or owners_of(each) for each in parameters):
        entries = {index: _sharded(entry, parameters[index]) for index, entry in state["state"].items()}
        state = {**state, "state": {index: entry for index, entry in entries.items() if is_here(parameters[index])}}
    for group, saved in zip(optimizer.param_groups, state.get("param_groups", ()), strict=False):
        saved |= {key: group[key] for key in IMPLEMENTATION if key in group}  # another layout may need other kernels
    if state:  # Lightning's is empty if a module configures no optimizer
        optimizer.load_state_dict({**state})


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters of all groups, in the order in which a state_dict counts them."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _sharded(entry: Any, like: Tensor) -> Any:
    return map_tensors(lambda full: shard_like(full, like) if full.shape == like.shape else full, entry)
