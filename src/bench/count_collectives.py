"""Count the all-reduces of a run, from within."""

import importlib
from typing import Any

import torch

from bench.runs import BenchPayload
from lockstep.launch.topology import RankContext


def run(payload: BenchPayload, context: RankContext) -> tuple[int, int]:
    """Return the numbers of all-reduces and of steps of a run of the engine whose module is `payload.subject`.

    torch's profiler sees every collective as an operator of c10d, whether Python or DistributedDataParallel's C++
    calls it.
    """
    profiler: Any = torch.autograd.profiler.profile(use_kineto=False)
    with profiler:
        importlib.import_module(payload.subject).run(payload.plan, context)
    calls = sum(event.name == "c10d::allreduce_" for event in profiler.function_events)
    return calls, payload.plan.steps.total_steps
