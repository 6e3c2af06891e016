"""What a module may ask of `trainer.strategy` and of `trainer.precision_plugin`: collectives, and clipping."""

import json
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.parallel.messages import broadcast_bytes

if TYPE_CHECKING:
    from lockstep.raw.trainer import RawTrainer


class RawStrategy:
    """What a module may ask of `trainer.strategy`."""

    def __init__(self, trainer: "RawTrainer") -> None:
        self.trainer = trainer
        self.root_device = trainer.session.device
        self.world_size, self.global_rank = trainer.world_size, trainer.global_rank
        self.local_rank, self.is_global_zero = trainer.local_rank, trainer.is_global_zero
        self.lightning_module = self.model = trainer.session.module
        self.handles_gradient_accumulation = False

    def backward(self, loss: Tensor, optimizer: Any = None, *arguments: Any, **named: Any) -> None:
        self.trainer.manual_backward(loss, *arguments, **named)

    def barrier(self, name: str | None = None) -> None:
        if dist.is_initialized():
            dist.barrier()

    def broadcast(self, value: Any, src: int = 0) -> Any:
        """Return rank 0's tensor, or another object by its representation."""
        if not dist.is_initialized():
            return value
        if isinstance(value, Tensor):
            dist.broadcast(value, src=src)
            return value
        if src != 0:
            raise ValueError("engine=raw broadcasts from rank 0 what is no tensor")
        return json.loads(broadcast_bytes(json.dumps(value).encode()))

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Reduce a tensor over ranks, to the mean or the sum."""
        if not dist.is_initialized() or not isinstance(tensor, Tensor):
            return tensor
        summed = tensor.clone()
        dist.all_reduce(summed, group=group)
        mean = str(getattr(reduce_op, "__name__", reduce_op)).lower() in ("mean", "avg", "none")
        return summed / self.world_size if mean else summed

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """Whether all ranks, or any, decide so."""
        votes = torch.tensor(int(decision), device=self.root_device)
        if dist.is_initialized():
            dist.all_reduce(votes)
        return bool(votes == self.world_size) if all else bool(votes)

    def all_gather(self, tensor: Tensor, group: Any = None, sync_grads: bool = False) -> Tensor:
        """Return the tensors of all ranks, shape (ranks, …); the tensor itself if there is one rank."""
        if not dist.is_initialized():
            return tensor
        if sync_grads:
            from torch.distributed.nn.functional import all_gather

            return torch.stack([*all_gather(tensor.contiguous())])  # type: ignore[no-untyped-call]
        parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(self.world_size)]
        dist.all_gather(parts, tensor.contiguous(), group=group)
        return torch.stack(parts)


class Clipping:
    """What `self.clip_gradients` asks of `trainer.precision_plugin`."""

    def clip_gradients(
        self, optimizer: Optimizer, clip_val: float = 0.0, gradient_clip_algorithm: Any = "norm"
    ) -> None:
        parameters = [own for group in optimizer.param_groups for own in group["params"]]
        if clip_val <= 0:
            return
        if getattr(gradient_clip_algorithm, "value", gradient_clip_algorithm) == "value":
            nn.utils.clip_grad_value_(parameters, clip_val)
        else:
            nn.utils.clip_grad_norm_(parameters, clip_val)
