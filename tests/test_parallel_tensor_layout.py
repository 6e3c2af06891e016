"""Norms, clipping and states of parameters that four ranks store in different ways are those of full tensors."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.optim import Adam

from lockstep.strategies.parallel.tensor_layout import (
    clip_gradients,
    copied_part,
    full_optimizer_state,
    full_state_dict,
    gradient_norms,
    load_full_state_dict,
    load_optimizer_state,
    shard_like,
)
from tests.conftest import IN_PROCESS
from tests.rank_helpers import wrong_on

pytestmark = IN_PROCESS

OWNERS = {"3": (1,), "4": (2, 3)}


def lay_out(full: nn.ParameterList, rank: int) -> nn.ParameterList:
    """One on every rank, one on a mesh of two dimensions, one on half of it, two on a few ranks."""
    mesh, parameters = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "tensor")), copy.deepcopy(full)
    likes: dict[str, tuple[Any, Any]] = {"1": (mesh, [Replicate(), Shard(0)]), "2": (mesh["tensor"], [Shard(1)])}
    for name, (part, placements) in likes.items():
        sharded = distribute_tensor(getattr(full, name).detach(), part, placements, src_data_rank=None)
        setattr(parameters, name, nn.Parameter(sharded))
    for name, owners in OWNERS.items():
        parameter = getattr(full, name).detach()
        placed = nn.Parameter(parameter.clone() if rank in owners else parameter.to("meta"))
        placed.owners = owners  # type: ignore[attr-defined]
        setattr(parameters, name, placed)
    return parameters


def wrong_copies(rank: int, _: int) -> list[str]:
    """By hand: ranks 0 and 2 have the same parts of those that are divided in two, ranks 2 and 3 the last one."""
    parameters = lay_out(nn.ParameterList([torch.zeros(4, 6) for _ in range(5)]), rank)
    copies = ["", f"tensor={rank % 2}", f"tensor={rank % 2}", None, "on 2, 3"]
    return [] if [*map(copied_part, parameters)] == copies else [f"{rank}: {[*map(copied_part, parameters)]}"]


def give_gradients(parameters: nn.ParameterList, full: nn.ParameterList) -> None:
    for each, like in zip(parameters, full, strict=True):
        gradient = torch.arange(float(like.numel())).view_as(like) + like.detach()
        each.grad = None if each.is_meta else shard_like(gradient, each)


def states(parameters: nn.ParameterList, optimizer: Adam) -> list[Tensor]:
    entries = full_optimizer_state(optimizer)["state"].values()
    return [*full_state_dict(parameters).values(), *(value for entry in entries for value in entry.values())]


def wrong_layouts(rank: int, _: int) -> list[str]:
    torch.manual_seed(0)
    full = nn.ParameterList([torch.randn(4, 6, dtype=torch.float64) for _ in range(5)])
    parameters = lay_out(full, rank)
    optimizers = [Adam(each.parameters(), lr=0.1, foreach=False) for each in (full, parameters)]
    norms = []
    for each in (full, parameters):
        give_gradients(each, full)
        norms.append(torch.stack([*gradient_norms([*each])]))
        clip_gradients([*each], 0.5)
        norms.append(torch.stack([*gradient_norms([*each])]))
    pairs = [("norms", norms[0], norms[2]), ("clipped", norms[1], norms[3])]
    for optimizer in optimizers:
        optimizer.step()
    expected, got = states(full, optimizers[0]), states(parameters, optimizers[1])
    pairs += [("state", *pair) for pair in zip(expected, got, strict=rank == 0)]  # rank 0 saves those of optimizers
    saved = copy.deepcopy(optimizers[0].state_dict())
    saved["param_groups"][0]["foreach"] = True
    load_full_state_dict(parameters, full.state_dict())
    load_optimizer_state(optimizers[1], saved)
    assert optimizers[1].param_groups[0]["foreach"] is False
    assert {*map(id, optimizers[1].state)} == {id(each) for each in parameters if not each.is_meta}
    pairs += [("loaded", *pair) for pair in zip(expected, states(parameters, optimizers[1]), strict=rank == 0)]
    return [f"rank {rank}: {name}: {a} {b}" for name, a, b in pairs if not torch.allclose(a, b, rtol=1e-12, atol=0)]


def test_parts_count_once() -> None:
    wrong = wrong_on(4, wrong_layouts, wrong_copies)
    assert not any(wrong.values()), wrong
