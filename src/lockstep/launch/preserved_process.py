"""Keep the command's process as it was while ranks run: signal handlers, loggers, `__main__`."""

import logging
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from lockstep.launch.stop_handler import signals_end_command


@contextmanager
def preserved_process(folder: Path) -> Iterator[list[int]]:
    """Handle signals for the job in `folder`, and suppress side effects of torch's agent: logs, DNS, `__main__`.

    Yields the signals that requested a stop.
    """
    with signals_end_command(folder) as requests, silence_torchelastic(), no_fqdn_lookup(), hide_main_module():
        yield requests


@contextmanager
def hide_main_module() -> Iterator[None]:
    """Keep new processes from importing the running script: it may call `run` without a `__main__` guard."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@contextmanager
def no_fqdn_lookup() -> Iterator[None]:
    """Stub getfqdn: torch's agent calls it at each event that it records, which takes seconds without a DNS reply."""
    original = socket.getfqdn
    socket.getfqdn = lambda name="": name or socket.gethostname()
    try:
        yield
    finally:
        socket.getfqdn = original


@contextmanager
def silence_torchelastic() -> Iterator[None]:
    """Keep torch's launchers from logging failures: they are raised, and shown once."""
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
