"""The only rank of a job in this process, so that a debugger finds the terminal: breakpoint(), pdb, those of IDEs.

Numbers, files, errors and signals are those of a rank that the fork server starts. The process is left as it was.
"""

import gc
import logging
import os
import signal
import threading
import warnings
from bdb import BdbQuit
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from lockstep.config_error import ConfigError
from lockstep.launch.failure import RankFailed, format_error, how_it_ended
from lockstep.launch.graceful_shutdown import FileRequest
from lockstep.launch.private_dir import job_folder, own_caches
from lockstep.launch.process_group import process_group
from lockstep.launch.signals import ENDING, signals_stop_ranks
from lockstep.launch.store import Rendezvous
from lockstep.launch.topology import RankContext
from lockstep.launch.worker import run_engine
from lockstep.memory.garbage import collect_rarely
from lockstep.memory.malloc import give_back_freed
from lockstep.private_api.cpython import forget_interrupt_handler
from lockstep.random_state import random_state, restore_random_state
from lockstep.world import Launchable

ALONE = RankContext(0, 1, 0, 1)
PROMPT = "cmdloop"
"""The function in which pdb waits at its prompt, and IPython's."""


def run_here(work: Launchable, engine: str) -> tuple[Any, list[int]]:
    """What the engine returns, or TrainingInterrupted; and the signals by which it was asked to stop.

    Raises:
        ConfigError, RankFailed, SystemExit: as `lockstep.launch.start`.
    """
    with job_folder() as folder, left_as_it_was(), signals_stop_ranks(folder) as asked, heard_at_a_prompt() as signals:
        os.environ.update({**own_caches(), **os.environ, **ALONE.variables})
        context = replace(ALONE, stop=FileRequest(folder, ALONE.rank, ALONE.world_size, None))
        try:
            with process_group(work.world, context, Rendezvous()):
                return run_engine(work, engine, context), asked
        except ConfigError as error:
            raise ConfigError(str(error)) from None
        except BdbQuit:
            raise RankFailed(ALONE.rank, "it was ended at the prompt of the debugger") from None
        except SystemExit as ended:
            if signals:
                raise
            raise RankFailed(ALONE.rank, how_it_ended(status_of(ended))) from None
        except Exception as error:
            raise RankFailed(ALONE.rank, format_error(error)) from None


def status_of(ended: SystemExit) -> int:
    """The exit status that Python gives a process that ends so."""
    return ended.code if isinstance(ended.code, int) else int(ended.code is not None)


@contextmanager
def heard_at_a_prompt() -> Iterator[list[int]]:
    """End at once on a signal that comes at a debugger's prompt: no batch would end there. Gives all that came."""
    signals: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    usual = {int(number): signal.getsignal(number) for number in ENDING}

    def hear(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        if at_a_prompt(frame):
            raise SystemExit(128 + number)
        handler = usual[number]
        if callable(handler):
            handler(number, frame)

    for number in ENDING:
        signal.signal(number, hear)
    try:
        yield signals
    finally:
        for ending, before in usual.items():
            signal.signal(ending, before)
        forget_interrupt_handler()  # it would be `hear`


def at_a_prompt(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != PROMPT:
        frame = frame.f_back
    return frame is not None


@contextmanager
def left_as_it_was() -> Iterator[None]:
    """Give back what a rank takes for itself: it expects a process of its own, which ends with it."""
    environment, folder, threads = dict(os.environ), Path.cwd(), torch.get_num_threads()
    dtype, hook, thresholds = torch.get_default_dtype(), threading.excepthook, gc.get_threshold()
    gpus = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    devices = gpus if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    numbers, levels = random_state(devices), logger_levels()
    freezes = gc.get_freeze_count() == 0
    if freezes:
        gc.freeze()
    collect_rarely()
    try:
        with warnings.catch_warnings():
            yield
    finally:
        gc.set_threshold(*thresholds)
        if freezes:
            gc.unfreeze()
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        threading.excepthook = hook
        restore_random_state(numbers, devices)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        give_back_freed()


def logger_levels() -> dict[str, int]:
    known = logging.root.manager.loggerDict.items()
    return {name: logger.level for name, logger in known if isinstance(logger, logging.Logger)}
