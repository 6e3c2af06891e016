"""`trainer.strategy` and `trainer.precision_plugin`, as far as a module or a callback uses them."""

import json
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.parallel.messages import all_gather_bytes

if TYPE_CHECKING:
    from lockstep.raw.trainer import RawTrainer


class RawStrategy:
    """Collectives by the names of a Lightning strategy; with one process each returns what it is given."""

    def __init__(self, trainer: "RawTrainer") -> None:
        self.trainer, self.root_device = trainer, trainer.session.device
        self.world_size, self.global_rank = trainer.world_size, trainer.global_rank
        self.local_rank, self.is_global_zero = trainer.local_rank, trainer.is_global_zero

    def backward(self, loss: Tensor, optimizer: Any = None, *arguments: Any, **options: Any) -> None:
        self.trainer.manual_backward(loss, *arguments, **options)

    def barrier(self, name: str | None = None) -> None:
        if dist.is_initialized():
            dist.barrier()

    def broadcast(self, value: Any, src: int = 0) -> Any:
        """Return rank 0's tensor or JSON value."""
        if not dist.is_initialized():
            return value
        if isinstance(value, Tensor):
            dist.broadcast(value, src=src)
            return value
        if src != 0:
            raise ValueError("engine=raw can only broadcast a tensor from another rank than 0")
        return json.loads(all_gather_bytes(json.dumps(value).encode())[0])

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Return the mean of a tensor over ranks, or its sum if `reduce_op` is one."""
        if not dist.is_initialized() or not isinstance(tensor, Tensor):
            return tensor
        summed = tensor.clone()
        dist.all_reduce(summed, group=group)
        is_mean = str(getattr(reduce_op, "__name__", reduce_op)).lower() in ("mean", "avg", "none")
        return summed / self.world_size if is_mean else summed

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """Whether all ranks, or any, decide so."""
        votes = self.reduce(torch.tensor(int(decision), device=self.root_device), reduce_op="sum")
        return bool(votes == self.world_size) if all else bool(votes)

    def all_gather(self, tensor: Tensor, group: Any = None, sync_grads: bool = False) -> Tensor:
        """Return the tensors of all ranks, shape (ranks, …); the tensor itself if there is one process."""
        if not dist.is_initialized():
            return tensor
        tensor = tensor.contiguous()
        if sync_grads:
            from torch.distributed.nn.functional import all_gather

            return torch.stack([*all_gather(tensor)])  # type: ignore[no-untyped-call]
        gathered = [torch.empty_like(tensor) for _ in range(self.world_size)]
        dist.all_gather(gathered, tensor, group=group)
        return torch.stack(gathered)


def clip_gradients(optimizer: Optimizer, gradient_clip_val: float = 0.0, gradient_clip_algorithm: Any = "norm") -> None:
    """Clip the gradients of an optimizer by norm or by value."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if gradient_clip_val <= 0:
        return
    if getattr(gradient_clip_algorithm, "value", gradient_clip_algorithm) == "value":
        nn.utils.clip_grad_value_(parameters, gradient_clip_val)
    else:
        nn.utils.clip_grad_norm_(parameters, gradient_clip_val)
