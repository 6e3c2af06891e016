"""The parent stays as it was while ranks are started and awaited: environment, signals, logs, random state, script."""

import logging
import os
import random
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType

from lockstep.launch.place import ASKED, GRACE, HEARING

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@contextmanager
def undisturbed(folder: Path) -> Iterator[list[int]]:
    """Undo what the elastic agent does to the process it runs in: to its environment and its random numbers.

    Gives the signals by which the ranks of the job in `folder` have been asked to stop.
    """
    environment, numbers, temporary = dict(os.environ), random.getstate(), tempfile.tempdir
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # else the agent hosts a store on every interface
    os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = "1"  # else it would wait 30 s for a rank that is stopped
    tempfile.tempdir = str(folder)  # where torch has each rank write its error, and leaves it
    try:
        with own_signals(folder) as asked, silent_agents(), unasked_name(), no_main_module():
            yield asked
    finally:
        os.environ.clear()
        os.environ.update(environment)
        random.setstate(numbers)
        tempfile.tempdir = temporary


@contextmanager
def own_signals(folder: Path) -> Iterator[list[int]]:
    """Turn signals that end the command into SystemExit, so that its ranks and files go with it; then as before.

    While its ranks train, the first signal only asks them to stop, and a second, or the end of their time, ends them.
    """
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask_or_exit(number: int, _frame: FrameType | None) -> None:
        if asked or not (folder / HEARING).exists():
            raise SystemExit(128 + number)
        asked.append(number)
        (folder / ASKED).touch()
        signal.setitimer(signal.ITIMER_REAL, GRACE)

    def exit_as_asked(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + asked[0])

    before = {number: signal.getsignal(number) for number in (*ENDING_SIGNALS, signal.SIGALRM)}
    for number in ENDING_SIGNALS:
        signal.signal(number, ask_or_exit)
    signal.signal(signal.SIGALRM, exit_as_asked)
    try:
        yield asked
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


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
def unasked_name() -> Iterator[None]:
    """Keep torch's agent from asking the network for this machine's full name, at each event that it takes note of.

    Where no answer comes, every question takes seconds.
    """
    asking = socket.getfqdn
    socket.getfqdn = lambda name="": name or socket.gethostname()
    try:
        yield
    finally:
        socket.getfqdn = asking


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
