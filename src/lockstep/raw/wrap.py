"""What a strategy does to a net: who computes the outputs, and what makes the gradient one over all ranks."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from lockstep.parallel import Forward, devices_of, forward_of, move_to_devices
from lockstep.parallel.fixed_bucket_ddp import FixedBucketDDP
from lockstep.plan import Plan
from lockstep.raw.reduce import BY_HAND


@dataclass(frozen=True)
class Wrapped:
    """The plain net, whose names and numbers are saved, and how the strategy uses it."""

    net: nn.Module
    forward: Forward
    """Outputs whose backward leads to gradients over all ranks, at the latest after `synchronise`."""
    evaluate: Forward
    """The same outputs where no gradient is wanted, so that no rank waits for another."""
    synchronise: Callable[[], None]
    """To be called after the last backward of an optimizer step. Under DDP backward has done it already."""
    accumulating: Callable[[], AbstractContextManager[None]]
    """Around forward and backward of all batches of a step but the last: they need not be synchronised."""


def wrap(plan: Plan, net: nn.Module) -> Wrapped:
    """Put the net where it computes, and around it what its strategy needs.

    DDP gives every rank the first weights of rank 0. By hand nobody does: they are the same by the same seed.
    """
    move_to_devices(plan, net)
    plain = forward_of(plan, net)
    if plan.strategy.wrap != "ddp":
        return Wrapped(net, plain, plain, _nothing, nullcontext)
    if plan.gradient_sync == "ddp":
        device_ids = devices_of(plan) if plan.accelerator == "gpu" else None
        ddp = FixedBucketDDP(net, device_ids, gradient_as_bucket_view=True)
        return Wrapped(net, ddp, plain, _nothing, ddp.no_sync)
    return Wrapped(net, plain, plain, partial(_by_hand, plan.gradient_sync, net), nullcontext)


def _by_hand(way: str, net: nn.Module) -> None:
    """Every rank brings the same tensors, zeros where its share of the batch gave a parameter no gradient."""
    for parameter in net.parameters():
        if parameter.grad is None and parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    BY_HAND[way]([parameter.grad for parameter in net.parameters() if parameter.grad is not None])


def _nothing() -> None:
    pass
