"""How the tensors of parameters, gradients and optimizer states lie on ranks: each rank has all of every tensor."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.private_api.torch import norms

if TYPE_CHECKING:
    from lockstep.parallel.sharded_module import ShardedModule


class TensorLayout:
    """The layout of strategies that shard nothing; see `ShardedTensors` for the other one.

    All ranks must call these methods in the same order: some of them communicate.
    """

    def local_shard(self, tensor: Tensor) -> Tensor:
        """Return the part of a tensor that this rank stores."""
        return tensor

    def full_tensor(self, tensor: Tensor) -> Tensor:
        """Return all of a tensor, on every rank."""
        return tensor

    def shard_like(self, full_tensor: Tensor, like: Tensor) -> Tensor:
        """Return a full tensor, which every rank has, on the device and in the layout of `like`."""
        return full_tensor.to(like.device)

    def gradient_norms(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the norm of each gradient, reduced over all ranks."""
        return norms(gradients)

    def state_dict(self, net: nn.Module) -> Mapping[str, Tensor]:
        """Return the state_dict of a net, with full tensors."""
        state: Mapping[str, Tensor] = net.state_dict()
        return state

    def load_state_dict(self, net: nn.Module, state: Mapping[str, Tensor], strict: bool = True) -> None:
        """Load a state_dict that has full tensors."""
        net.load_state_dict(state, strict=strict)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the state_dict of an optimizer, with full tensors."""
        return optimizer.state_dict()

    def load_optimizer_state(self, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
        """Load an optimizer's state_dict that has full tensors."""
        optimizer.load_state_dict({**state})

    def sharded_module(self, module: nn.Module) -> "ShardedModule | None":
        """Return the object that shards the weights of a wrapped LightningModule, or None if they are not sharded."""
        return None

    def full_weights(self, module: nn.Module) -> AbstractContextManager[None]:
        """Return a context in which the weights of a LightningModule are full tensors."""
        return nullcontext()
