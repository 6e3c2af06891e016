"""Count what a rank calls of torch.distributed in a run, from Python and from DistributedDataParallel's C++ alike.

torch's profiler sees every collective as an operator of c10d, on its way to whichever backend.
"""

import importlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from lockstep.bench.calls_work import Calls, Counted
from lockstep.launch import RankContext

SUM = "c10d::allreduce_"


def run(work: Counted, context: RankContext) -> Calls:
    """The engine that the launcher calls."""
    profiler: Any = torch.autograd.profiler.profile(use_kineto=False)
    with wrapped() as nets, profiler:
        importlib.import_module(work.engine).run(work.plan, context)
    called = Counter(event.name for event in profiler.function_events if event.name.startswith("c10d::"))
    return Calls(called[SUM], called.total() - called[SUM], sum(map(bucket_count, nets)))


def bucket_count(net: DistributedDataParallel) -> int:
    logged: Any = net._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    return len((logged.get("rebuilt_bucket_sizes") or logged["bucket_sizes"]).split(","))


@contextmanager
def wrapped() -> Iterator[list[DistributedDataParallel]]:
    """The nets that are wrapped meanwhile."""
    nets: list[DistributedDataParallel] = []
    plain = DistributedDataParallel.__init__

    def noted(self: DistributedDataParallel, *arguments: Any, **options: Any) -> None:
        plain(self, *arguments, **options)
        nets.append(self)

    DistributedDataParallel.__init__ = noted  # type: ignore[method-assign]
    try:
        yield nets
    finally:
        DistributedDataParallel.__init__ = plain  # type: ignore[method-assign]
