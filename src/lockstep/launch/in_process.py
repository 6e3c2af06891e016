"""Run a rank in this process: of torchrun or SLURM, in the group that a program has formed, or the only one of a job.

A debugger then has the terminal: breakpoint(), an IDE. Numbers, files, errors and signals are those of a rank that the
fork server starts. The process is restored afterwards.
"""

import gc
import logging
import os
import threading
import warnings
from bdb import BdbQuit
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch

from lockstep.base.random_state import preserve_generators
from lockstep.launch import collect_rarely
from lockstep.launch.failure import RankFailed, failure_report, is_debugged, lost_a_peer
from lockstep.launch.memory import set_malloc_trim
from lockstep.launch.private_dir import job_folder
from lockstep.launch.signals import end_command, first_signal_requests_stop, signal_handlers
from lockstep.launch.topology import RankContext
from lockstep.launch.worker import agreed, process_group, redirect_output, run_engine
from lockstep.plan.targets.locate import UserCodeError
from lockstep.plan.world import Launchable


class EndedBySignal(SystemExit):
    """Raised by a signal handler, unlike the SystemExit of a `sys.exit` in the user's code."""


def raise_exit(number: int, _frame: FrameType | None) -> NoReturn:
    """End by an exception, so that the prompt of a debugger restores its terminal."""
    raise EndedBySignal(128 + number)


def run_in_process(
    work: Launchable, engine: str, context: RankContext, is_launched: bool = False
) -> tuple[Any, list[int]]:
    """Return what the engine returns, or TrainingInterrupted; and the signals that requested a stop here.

    is_launched: by torchrun or SLURM. Then `external_process_group` reports errors, and this process has no other work.
    """
    end = end_command if is_launched else None
    with (
        job_folder() as folder,
        restored_process(),
        signal_handlers(end or raise_exit),
        first_signal_requests_stop(folder, end) as stops,
    ):
        os.environ.update(context.variables)
        work = agreed(work)
        if is_launched:
            redirect_output(Path(work.world.folder), context)
        try:
            with process_group(work.world, context, folder) as store:
                return run_engine(work, engine, context, folder, store), stops
        except BdbQuit:
            raise RankFailed(context.rank, "it was ended at the prompt of the debugger") from None
        except BaseException as error:
            if is_launched and stops and lost_a_peer(error):
                raise SystemExit(128 + stops[0]) from None  # the same signal ended the peer
            if is_launched or isinstance(error, UserCodeError | EndedBySignal) or is_debugged():
                raise
            raise failure_report(error, context.rank).error from None


@contextmanager
def restored_process() -> Iterator[None]:
    """Restore what a rank changes: it expects a process of its own, which ends with it."""
    environment, threads = dict(os.environ), torch.get_num_threads()
    dtype, hook, thresholds = torch.get_default_dtype(), threading.excepthook, gc.get_threshold()
    gpus = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    devices = gpus if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    loggers = logging.root.manager.loggerDict
    levels = {name: logger.level for name, logger in loggers.items() if isinstance(logger, logging.Logger)}
    collect_rarely()
    try:
        with warnings.catch_warnings(), preserve_generators(devices), chdir(Path.cwd()):
            yield
    finally:
        gc.set_threshold(*thresholds)
        os.environ.clear()
        os.environ.update(environment)
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        threading.excepthook = hook
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        set_malloc_trim(True)
