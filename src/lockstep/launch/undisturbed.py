"""The parent stays as it was while ranks are started and awaited: environment, signals, logs, random state, script."""

import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Undo what the elastic agent does to the process it runs in: to its environment and its random numbers."""
    environment, numbers = dict(os.environ), random.getstate()
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # else the agent hosts a store on every interface
    try:
        with own_signals(), silent_agents(), no_main_module():
            yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        random.setstate(numbers)


@contextmanager
def own_signals() -> Iterator[None]:
    """Turn signals that end the command into SystemExit, so that its ranks and files go with it; then as before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    for number in ENDING_SIGNALS:
        signal.signal(number, _exit_by)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit_by(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextmanager
def no_main_module() -> Iterator[None]:
    """Keep new processes from importing the script that is running: a script may call `run` without a guard."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@contextmanager
def silent_agents() -> Iterator[None]:
    """Keep torch's launchers from logging what fails: it reaches us raised, and is told once."""
    packages = ("torch.distributed.elastic", "torch.multiprocessing")
    loggers = [logging.getLogger(name) for name in [*logging.root.manager.loggerDict] if name.startswith(packages)]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
