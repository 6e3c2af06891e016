"""DistributedDataParallel with fixed buckets, so that gradients are summed in one order, and without buffer broadcasts.

After the first step of a process torch lays out its buckets anew, in the order in which gradients were ready. A ring
adds what the ranks send in an order that depends on the position in a bucket, so with more than two ranks a resumed
run, whose process has another first step, would differ from an uninterrupted one in last bits.

Before each forward torch would broadcast rank 0's buffers. Those of BatchNorm play no part in training: rank 0's are
what they are either way, and every rank has them where a net is evaluated (`broadcast_buffers`).
"""

import warnings
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from lockstep.config_error import ConfigError, config_error, shorten
from lockstep.private_api.torch import LastToFirst, can_fix_buckets, fix_buckets
from lockstep.progress import notice

UNFINISHED = "Expected to have finished reduction in the prior iteration"
"""How torch's error begins where a parameter had no gradient; it comes with the forward pass of the next step."""


class FixedBucketDDP(LastToFirst):
    """Buckets from the last parameter to the first, which is about how gradients become ready, and never others.

    A version of torch without the private names for that keeps its first buckets where it looks for unused parameters.
    `averaged`: the `id` of each parameter whose gradient it averages, which are those that are trained from the start.
    """

    def __init__(self, module: nn.Module, device_ids: list[int] | list[Any] | None, **options: Any) -> None:
        fixed = can_fix_buckets()
        options["find_unused_parameters"] = options.get("find_unused_parameters", False) or not fixed
        warnings.filterwarnings("ignore", "find_unused_parameters=True was specified")
        super().__init__(module, device_ids, **options)
        self.averaged = frozenset(id(own) for own in module.parameters() if own.requires_grad)
        self.broadcast_buffers = False  # as an argument it has another name in newer versions of torch
        if fixed:
            fix_buckets(self)
        elif dist.get_rank() == 0:
            notice(f"torch {torch.__version__} differs: DDP looks for unused parameters in every step, which is slower")
        if not self.find_unused_parameters:
            self.first_step = register_optimizer_step_post_hook(self._after_first_step)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """As torch's.

        Raises:
            ConfigError: in the step before parameters had no gradient; names them.
        """
        try:
            return super().forward(*inputs, **named)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if UNFINISHED not in str(error):
                raise
            raise unused(self._without_gradient()) from None

    def _after_first_step(self, optimizer: Optimizer, *_: Any) -> None:
        """The only step of a short run, behind which torch has no occasion to tell."""
        own = {id(parameter) for parameter in self.module.parameters()}
        if any(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"]):
            self.first_step.remove()
            if names := self._without_gradient():
                raise unused(names)

    def _without_gradient(self) -> Sequence[str]:
        """Their names; none where all gradients are gone, which somebody has set to None since."""
        module = self.module.module if isinstance(self.module, TrainingStep) else self.module
        named = (module.net if getattr(module, "computes_with_net", False) else module).named_parameters()
        trained = [(name, own) for name, own in named if own.requires_grad and id(own) in self.averaged]
        names = [name for name, own in trained if own.grad is None]
        return names if len(names) < len(trained) else []


def average_late(parameters: Iterable[Tensor], averaged: Collection[int]) -> None:
    """Average over ranks the gradients of parameters that were frozen as DDP was made, which looks at no others later.

    To be called by every rank before each optimizer step. Of a rank that has none, zeros count, as in DDP.
    """
    late = [own for own in parameters if own.requires_grad and id(own) not in averaged]
    if not late:
        return
    held = torch.tensor([own.grad is not None for own in late], dtype=torch.int64, device=late[0].device)
    dist.all_reduce(held)
    for own, ranks in zip(late, held.tolist(), strict=True):
        if ranks:
            own.grad = torch.zeros_like(own) if own.grad is None else own.grad
            dist.all_reduce(own.grad)
            own.grad /= dist.get_world_size()


def unused(names: Sequence[str]) -> ConfigError:
    """The refusal of parameters that take no part in a step, whose gradients the other ranks wait for."""
    listed = shorten(", ".join(names)) or "some parameters"
    reason = f"{listed} had no gradient in a step, and ranks wait for all"
    return config_error("strategy.find_unused_parameters", False, reason, "strategy.find_unused_parameters=true")


class TrainingStep(nn.Module):
    """A LightningModule whose forward is its training step. Its parameters come in the module's own order."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *arguments: Any) -> Any:
        return self.module.training_step(*arguments)
