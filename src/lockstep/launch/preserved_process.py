"""The command stays as it was while ranks are started and awaited: signals, logs, script."""

import logging
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from lockstep.launch.signals import signals_stop_ranks


@contextmanager
def preserved_process(folder: Path) -> Iterator[list[int]]:
    """Keep torch's agent from what it would do beside its work: log, ask the network, and hand on the script.

    Gives the signals by which the ranks of the job in `folder` have been asked to stop.
    """
    with signals_stop_ranks(folder) as asked, silence_torchelastic(), no_fqdn_lookup(), hide_main_module():
        yield asked


@contextmanager
def hide_main_module() -> Iterator[None]:
    """Keep new processes from importing the script that is running: a script may call `run` without a guard."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@contextmanager
def no_fqdn_lookup() -> Iterator[None]:
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
def silence_torchelastic() -> Iterator[None]:
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
