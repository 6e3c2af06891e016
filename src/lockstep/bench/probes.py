"""Runs that are measured from within, in the ranks: calls of torch.distributed, and the time that monitoring takes."""

import importlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import torch

from lockstep.bench.context import BenchPayload
from lockstep.launch.topology import RankContext
from lockstep.loggers import Loggers
from lockstep.monitor.epoch import EpochMonitor
from lockstep.plan import Plan
from lockstep.sums.running import PredictionSamples

ALL_REDUCE = "c10d::allreduce_"
TIMED: dict[type, tuple[str, ...]] = {
    Loggers: ("log_metrics", "flush"),
    EpochMonitor: ("end_steps", "begin_validation", "end_epoch"),
    PredictionSamples: ("add",),
}


def run(payload: BenchPayload, context: RankContext) -> tuple[float, ...]:
    """Measure a run of the engine whose module is `payload.subject`."""
    return PROBES[payload.probe](payload.plan, importlib.import_module(payload.subject).run, context)


def count_collectives(plan: Plan, engine: Callable[..., Any], context: RankContext) -> tuple[float, ...]:
    """Return the all-reduces, other collectives and steps of a run.

    torch's profiler sees every collective as an operator of c10d, whatever the backend, from Python and from
    DistributedDataParallel's C++ alike.
    """
    profiler: Any = torch.autograd.profiler.profile(use_kineto=False)
    with profiler:
        engine(plan, context)
    called = Counter(event.name for event in profiler.function_events if event.name.startswith("c10d::"))
    return called[ALL_REDUCE], called.total() - called[ALL_REDUCE], plan.steps.total_steps


def time_monitoring(plan: Plan, engine: Callable[..., Any], context: RankContext) -> tuple[float, ...]:
    """Return the seconds of training and of monitoring: a difference of two runs would drown in the machine's noise.

    Monitoring is what loggers and the epoch's monitor do, and the CPU time of TensorBoard's writer threads.
    """
    seconds, depth = [0.0], [0]

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        """Add the time of a method, unless another timed method has called it."""

        @wraps(method)
        def call(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            depth[0] += 1
            try:
                return method(*arguments, **named)
            finally:
                depth[0] -= 1
                seconds[0] += 0.0 if depth[0] else time.perf_counter() - began

        return call

    for kind, names in TIMED.items():
        for name in names:
            setattr(kind, name, timed(getattr(kind, name)))
    close = Loggers.close

    def closing(self: Loggers, results: Mapping[str, float]) -> None:
        seconds[0] += sum(map(cpu_seconds, threading.enumerate()[1:]))
        close(self, results)

    Loggers.close = closing  # type: ignore[method-assign]
    metrics = engine(plan, context)
    return metrics["train_seconds"], seconds[0]


def cpu_seconds(thread: threading.Thread) -> float:
    """Return the CPU time of a running thread."""
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


PROBES = {"collectives": count_collectives, "monitoring": time_monitoring}
