"""Count a rank's calls of torch.distributed in a run, from Python and from DistributedDataParallel's C++ alike.

torch's profiler sees every collective as an operator of c10d, whatever the backend.
"""

import importlib
from collections import Counter
from typing import Any

import torch

from lockstep.bench.payloads import BenchPayload
from lockstep.launch import RankContext

ALL_REDUCE = "c10d::allreduce_"


def run(payload: BenchPayload, context: RankContext) -> tuple[int, int]:
    """Called by the launcher on every rank: all-reduces, and other collectives; `subject` is an engine's module."""
    profiler: Any = torch.autograd.profiler.profile(use_kineto=False)
    with profiler:
        importlib.import_module(payload.subject).run(payload.plan, context)
    called = Counter(event.name for event in profiler.function_events if event.name.startswith("c10d::"))
    return called[ALL_REDUCE], called.total() - called[ALL_REDUCE]
