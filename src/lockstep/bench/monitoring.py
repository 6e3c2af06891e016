"""What monitoring takes of a run, measured within it: a difference of two runs would drown in the machine's noise.

It is what loggers and the epoch's monitor do from the first batch on, and the CPU time of TensorBoard's writer threads.
"""

import importlib
import threading
import time
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from lockstep.bench.payloads import BenchPayload
from lockstep.launch import RankContext
from lockstep.loggers import Loggers
from lockstep.monitor.epoch import EpochMonitor
from lockstep.sums.shown import Shown

TIMED: dict[type, tuple[str, ...]] = {
    Loggers: ("log_metrics", "flush"),
    EpochMonitor: ("end_steps", "begin_validation", "end_epoch"),
    Shown: ("add",),
}


class MethodTimer:
    """Sums the seconds of methods; of one that calls another, once."""

    def __init__(self) -> None:
        self.seconds, self.within = 0.0, False

    def timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def timed(*arguments: Any, **named: Any) -> Any:
            if self.within:
                return method(*arguments, **named)
            self.within, began = True, time.perf_counter()
            try:
                return method(*arguments, **named)
            finally:
                self.seconds += time.perf_counter() - began
                self.within = False

        return timed


def run(payload: BenchPayload, context: RankContext) -> tuple[float, float]:
    """Called by the launcher: seconds of training, and of monitoring. `subject` is an engine's module."""
    timer, writers = MethodTimer(), [0.0]
    for kind, names in TIMED.items():
        for name in names:
            setattr(kind, name, timer.timed(getattr(kind, name)))
    close = Loggers.close

    def closing(self: Loggers, results: Mapping[str, float]) -> None:
        writers[0] = sum(map(cpu_seconds, threading.enumerate()[1:]))
        close(self, results)

    Loggers.close = closing  # type: ignore[method-assign]
    metrics = importlib.import_module(payload.subject).run(payload.plan, context)
    return metrics["train_seconds"], timer.seconds + writers[0]


def cpu_seconds(thread: threading.Thread) -> float:
    """Of a thread that is still there."""
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
