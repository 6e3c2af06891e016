"""Count what a training step computes and moves, and measure what the machine could do of either.

Operations are those of convolutions and matrix products (torch's own counter). Bytes are the sizes of what every
operator of forward, loss and backward takes and gives, as if nothing stayed in a cache; views move nothing.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from lockstep import data
from lockstep.bench.roofline_work import Counts, Step, Work
from lockstep.launch import RankContext
from lockstep.parallel import synchronize
from lockstep.seeding import plain_net

TRIES = 5
"""Of which the fastest counts: a peak is what nothing disturbed."""
KINDS = {"float32": torch.float32, "bf16": torch.bfloat16}


def run(work: Step, context: RankContext) -> Counts:
    """The engine that the launcher calls."""
    plan, (device, *_) = work.plan, work.plan.strategy.devices(work.plan)
    tensors = data.load(plan.data)
    net = plain_net(plan, tensors).to(device)
    ids = torch.arange(plan.batch_size)
    batch = tensors.as_float(tensors.train[ids], torch.float32)
    inputs, targets = batch.inputs.to(device), batch.targets.to(device)
    counted = {name: work_of(net, inputs, targets, kind) for name, kind in KINDS.items()}
    peak = {
        name: 2 * work.matrix**3 / fastest(product(work.matrix, kind, device), device) for name, kind in KINDS.items()
    }
    source = torch.ones(work.copied // 4, device=device)
    target = torch.empty_like(source)
    return Counts(counted, peak, 2 * work.copied / fastest(lambda: target.copy_(source), device))


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the bytes of every tensor that goes into or comes out of an operator."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            for leaf in tree_leaves((args, kwargs, result)):
                self.bytes += leaf.numel() * leaf.element_size() if isinstance(leaf, Tensor) else 0
        return result


def work_of(net: nn.Module, inputs: Tensor, targets: Tensor, kind: torch.dtype) -> Work:
    def step() -> None:
        net.zero_grad()
        with torch.autocast(inputs.device.type, kind, enabled=kind != torch.float32):
            loss = F.cross_entropy(net(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]

    with FlopCounterMode(display=False) as counter:
        step()
    with Traffic() as traffic:
        step()
    return Work(counter.get_total_flops() / len(inputs), traffic.bytes / len(inputs))


def product(size: int, kind: torch.dtype, device: torch.device) -> Callable[[], object]:
    left, right = (torch.ones(size, size, dtype=kind, device=device) for _ in range(2))
    return lambda: left @ right


def fastest(call: Callable[[], object], device: torch.device) -> float:
    """Seconds, of several tries behind one that warms up."""
    seconds = []
    for _ in range(1 + TRIES):
        synchronize(device)
        began = time.perf_counter()
        call()
        synchronize(device)
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])
