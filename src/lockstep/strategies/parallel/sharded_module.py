"""A LightningModule of which each rank has shards; its weights are gathered while a step, or its forward, runs.

A step may read any weight, in any way. What it writes into a gathered weight would be lost, and is an error.
"""

import gc
import inspect
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import TYPE_CHECKING, Any
from weakref import ref

import torch
import torch.distributed as dist
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard

from lockstep.base.config_error import ConfigError, config_error, require
from lockstep.base.messages import all_reduce_sums
from lockstep.base.private_api.torch import complete_dtensors, has_hooks, version_of
from lockstep.strategies.parallel.tensor_layout import is_sharded, local_shard
from lockstep.strategies.parallel.used_weights import watch

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

STEPS = ("training_step", "validation_step", "test_step")


class ShardedModule(nn.Module):
    """Shards a LightningModule in place, but for weights without dimensions, and wraps its methods.

    `fully_shard` gathers weights for a forward: here for that of this module, which calls the method. So `self(x)`
    within a step does not shard them again.
    shards: the parameters by name, as they are between two steps.
    used: the indices of the parameters that have got a gradient from this rank in a backward.
    """

    def __init__(self, module: Any, mesh: "DeviceMesh") -> None:
        super().__init__()
        self.module, self.mesh, self.is_gathered = module, mesh, False
        self.used, self.watched = set[int](), set[Tensor]()
        self.shards: Mapping[str, Tensor] = {}
        fits, reason = hasattr(FSDPModule, "set_reduce_scatter_unused_params"), "it needs torch 2.13 or newer"
        require(fits, "strategy.module", "shard", reason, "strategy.module=auto")
        complete_dtensors()  # hooks of the module may measure and change its weights
        references = self._shard(dict(module.named_parameters()))
        gc.collect()
        for name in (name for name, reference in references.items() if reference() is not None):
            raise self._error(f"keeps {name} in another place, too, such as a list, where it would not be trained")
        methods = {name: getattr(type(module), name) for name in STEPS}
        steps = [
            name for name, step in methods.items() if callable(step) and step is not getattr(LightningModule, name)
        ]
        for name in (*steps, "forward"):
            self._replace(name, self._gathered)
        self._replace("backward", self._backward)

    def _shard(self, weights: Mapping[str, nn.Parameter]) -> "Mapping[str, ref[nn.Parameter]]":
        """Shard the weights; return references to what they were, which nothing should keep."""
        for name, weight in weights.items():
            if has_hooks(weight):
                raise self._error(f"has a hook on the gradient of {name}, and a shard has none")
            weight.data = weight.data.contiguous()
        attributes = {name: {**vars(weight)} for name, weight in weights.items()}
        scalars = {weight for weight in weights.values() if not weight.dim()}
        sharded: Any = fully_shard(self, mesh=self.mesh, reshard_after_forward=True, ignored_params=scalars)
        sharded.set_force_sum_reduction_for_comms(True)
        sharded.set_reduce_scatter_unused_params(True)
        for name, shard in self.module.named_parameters():
            vars(shard).update(attributes[name])  # by which its configure_optimizers may choose
        return {name: ref(weight) for name, weight in weights.items() if weight.dim()}

    def _error(self, reason: str) -> ConfigError:
        reason = f"{type(self.module).__name__} {reason}"
        return config_error("strategy.module", "shard", reason, "strategy.module=auto, or strategy=ddp")

    def _replace(self, name: str, method: Callable[..., Any]) -> None:
        original = getattr(self.module, name)
        wrapped: Any = wraps(original)(partial(method, original))
        wrapped.__wrapped__ = inspect.unwrap(original)  # Lightning unwraps once
        vars(self.module)[name] = wrapped

    def _gathered(self, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a method while the weights are gathered.

        `fully_shard` must not see the arguments: at the gradient of one it would end the backward.
        """
        if self.is_gathered:
            return original(*arguments, **options)
        self.is_gathered, self.shards = True, dict(self.module.named_parameters())
        try:
            return self(partial(original, *arguments, **options))
        finally:
            self.is_gathered = False

    def forward(self, call: "partial[Any]") -> Any:
        """Call a method, and raise if it has changed a gathered weight."""
        weights = [*self.module.parameters()]
        versions = [*map(version_of, weights)]
        if torch.is_grad_enabled():
            watch(enumerate(weights), self.watched, self.used.add)
        outputs = call()
        pairs = zip(self.shards.items(), self.module.parameters(), versions, strict=True)
        changed = {name: self._differs(shard, *rest) for (name, shard), *rest in pairs if is_sharded(shard)}
        if changed and torch.stack([*changed.values()]).any():
            name = next(name for name, flag in changed.items() if flag)
            raise self._error(f"changes {name} in {call.func.__name__}, where it is gathered and a change is lost")
        return outputs

    def _differs(self, shard: Tensor, weight: Tensor, version: int) -> Tensor:
        """Whether a gathered weight was changed: in place, or by `weight.data`, which this rank's shard tells."""
        if shard.requires_grad != weight.requires_grad or version_of(weight) != version:
            return torch.ones((), dtype=torch.bool, device=weight.device)
        parts, rank = weight.detach().chunk(self.mesh.size()), self.mesh.get_local_rank()
        part = parts[rank] if rank < len(parts) else parts[0][:0]
        return (part.contiguous().view(torch.uint8) != local_shard(shard.detach()).view(torch.uint8)).any()  # NaN, too

    def _backward(self, original: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """Call backward; average gradients that are not sharded, and remove those of weights that no rank has used.

        FSDP sends zeros for these: ranks may use different weights, and must send as many numbers.
        """
        shards = [*self.module.parameters()]
        had_none = [shard.grad is None for shard in shards]
        self.used.clear()
        original(*arguments, **options)
        used = torch.tensor([float(index in self.used) for index in range(len(shards))])
        for shard, none, ranks in zip(shards, had_none, all_reduce_sums(used, shards[0].device).tolist(), strict=True):
            if is_sharded(shard):
                shard.grad = None if none and not ranks else shard.grad
            elif ranks:
                shard.grad = torch.zeros_like(shard) if shard.grad is None else shard.grad
                dist.all_reduce(shard.grad)
                shard.grad /= self.mesh.size()
