"""Count the calls to other ranks in a run, from within."""

import importlib
from collections import Counter
from typing import Any

import torch

from bench.runs import BenchPayload
from lockstep.launch.topology import RankContext

ALL_REDUCE = "c10d::allreduce_"


def run(payload: BenchPayload, context: RankContext) -> tuple[int, int, int]:
    """Return the all-reduces, other collectives and steps of a run of the engine whose module is `payload.subject`.

    torch's profiler sees every collective as an operator of c10d, whether Python or DistributedDataParallel's C++
    calls it.
    """
    profiler: Any = torch.autograd.profiler.profile(use_kineto=False)
    with profiler:
        importlib.import_module(payload.subject).run(payload.plan, context)
    calls = Counter(event.name for event in profiler.function_events if event.name.startswith("c10d::"))
    return calls[ALL_REDUCE], calls.total() - calls[ALL_REDUCE], payload.plan.steps.total_steps
