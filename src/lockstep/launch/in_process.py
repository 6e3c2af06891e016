"""Run a rank in this process: of torchrun or SLURM, or the only one of a job.

A debugger then has the terminal: breakpoint(), an IDE. Numbers, files, errors and signals are those of a rank that the
fork server starts. The process is restored afterwards.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any, NoReturn

import torch

from lockstep.base.random_state import preserve_generators
from lockstep.launch.failure import LOST_PEER, failure_report, kind_of
from lockstep.launch.signals import COALESCE, SHUTDOWN_TIMEOUT, first_signal_requests_stop, signal_handlers
from lockstep.launch.topology import RankContext
from lockstep.launch.worker import process_group, run_engine
from lockstep.plan.targets.locate import UserCodeError
from lockstep.plan.world import Launchable


class EndedBySignal(SystemExit):
    """Raised by a signal handler, unlike the SystemExit of a `sys.exit` in the user's code."""


def raise_exit(number: int, _frame: FrameType | None) -> NoReturn:
    """End by an exception, so that the prompt of a debugger restores its terminal."""
    raise EndedBySignal(128 + number)


def run_in_process(work: Launchable, engine: str, launched: RankContext | None) -> tuple[Any, list[int]]:
    """Return what the engine returns, or TrainingInterrupted; and the signals that requested a stop here.

    launched: the rank that torchrun or SLURM started, whose errors `external_process_group` reports. Such a launcher
        may send several signals, and kills a rank that does not stop.
    """
    context, flags = launched or RankContext(0, 1, 0, 1), bytearray(2)
    with (
        restored_process(),
        nullcontext() if launched else signal_handlers(raise_exit),
        first_signal_requests_stop(flags, SHUTDOWN_TIMEOUT if launched else COALESCE) as stops,
    ):
        os.environ.update(context.variables)
        try:
            with process_group(work.world, context) as store:
                return run_engine(work, engine, context, flags, store), stops
        except BaseException as error:
            if launched and stops and kind_of(error) == LOST_PEER:
                raise SystemExit(128 + stops[0]) from None  # the same signal ended the peer
            if launched or isinstance(error, UserCodeError | EndedBySignal):
                raise
            raise failure_report(error, context.rank).error from None


@contextmanager
def restored_process() -> Iterator[None]:
    """Restore what a rank changes: it expects a process of its own, which ends with it."""
    environment, threads, dtype = dict(os.environ), torch.get_num_threads(), torch.get_default_dtype()
    deterministic = torch.get_deterministic_debug_mode()
    gpus = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    devices = gpus if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings(), preserve_generators(devices):
            yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.set_deterministic_debug_mode(deterministic)
