"""How DTensors lie on ranks: each rank stores a shard. Tensors of other types are the same on every rank."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from lockstep.parallel.sharded_module import SHARDED, ShardedModule
from lockstep.parallel.tensor_layout import TensorLayout
from lockstep.private_api.torch import norms
from lockstep.structures import map_tensors, tensors_of


class ShardedTensors(TensorLayout):
    """The layout of FSDP2: parameters, their gradients and optimizer states are DTensors."""

    def local_shard(self, tensor: Tensor) -> Tensor:
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    def full_tensor(self, tensor: Tensor) -> Tensor:
        return tensor.full_tensor().detach() if isinstance(tensor, DTensor) else tensor

    def shard_like(self, full_tensor: Tensor, like: Tensor) -> Tensor:
        full_tensor = full_tensor.to(like.device)
        if not isinstance(like, DTensor):
            return full_tensor
        return distribute_tensor(full_tensor, like.device_mesh, like.placements, src_data_rank=None)

    def gradient_norms(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """Sum the squared norms of the shards over ranks, in one message, and return the roots."""
        if not gradients:
            return ()
        squares = torch.stack([*norms([self.local_shard(gradient) for gradient in gradients])]).double().square()
        copies = [1 if isinstance(gradient, DTensor) else dist.get_world_size() for gradient in gradients]
        squares /= torch.tensor(copies, device=squares.device)
        dist.all_reduce(squares)
        return squares.sqrt().unbind()

    def state_dict(self, net: nn.Module) -> dict[str, Tensor]:
        return {name: self.full_tensor(tensor) for name, tensor in net.state_dict().items()}

    def load_state_dict(self, net: nn.Module, state: Mapping[str, Tensor], strict: bool = True) -> None:
        likes = tensors_of(net.state_dict())
        shards = {name: self.shard_like(state[name], like) for name, like in likes.items() if name in state}
        net.load_state_dict({**state, **shards}, strict=strict)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        state = optimizer.state_dict()
        return {**state, "state": map_tensors(self.full_tensor, state["state"])}

    def load_optimizer_state(self, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
        """Shard the tensors that have the shape of their parameter; others, as step counters, are loaded unchanged."""
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]

        def shards(entry: Any, parameter: Tensor) -> Any:
            return map_tensors(
                lambda tensor: self.shard_like(tensor, parameter) if tensor.shape == parameter.shape else tensor, entry
            )

        entries = {index: shards(entry, parameters[index]) for index, entry in state["state"].items()}
        optimizer.load_state_dict({**state, "state": entries})

    def sharded_module(self, module: nn.Module) -> ShardedModule | None:
        return SHARDED.get(module)

    def full_weights(self, module: nn.Module) -> AbstractContextManager[None]:
        sharded = self.sharded_module(module)
        return nullcontext() if sharded is None else sharded.computing()
