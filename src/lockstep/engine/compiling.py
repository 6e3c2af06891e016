"""`compile=true`: torch.compile of the nets that a module calls, in place: names and random numbers stay the same.

A graph is compiled for each shape of a batch, so that resumed runs compute the same bits; with `dynamic` one for all.
"""

import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from lockstep.base.private_api.torch import set_recompile_limit
from lockstep.plan.plan import Plan

SHAPES = 8  # shapes of a batch for which a net is compiled; batches of others are computed without compiling


def compile_nets(plan: Plan, rank: int, module: Any) -> None:
    """Compile what the steps of a LightningModule call."""
    torch.compiler.reset()  # an earlier run of this process counts its shapes, too
    options: dict[str, Any] = {"dynamic": plan.compile == "dynamic", "options": {"fallback_random": True}}
    parts: list[Any] = [*_called(module)]
    sharded: list[Any] = []
    if plan.strategy.shards_weights(plan):  # FSDP gathers weights by hooks, around what can be compiled
        from torch.distributed.fsdp import FSDPModule

        sharded = [part for part in module.modules() if isinstance(part, FSDPModule)]
    for part in sharded:
        part.forward = torch.compile(part.forward, **options)
    for part in parts if not sharded else ():
        part.compile(**options)
    set_recompile_limit(SHAPES * len(sharded or parts))  # parts of one class share it
    for name in ("torch.utils.cpp_extension", "torch._dynamo.variables"):  # which warn of a missing GPU
        logging.getLogger(name).setLevel(logging.ERROR)
    if rank == 0:
        print("compiling: the first batch of each shape takes some seconds", flush=True)


def _called(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the children with parameters; of a ModuleList its items, which are called one by one."""
    for child in module.children():
        if next(child.parameters(), None) is None:
            continue
        if type(child).forward is nn.Module.forward:
            yield from _called(child)
        else:
            yield child
