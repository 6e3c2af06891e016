"""The fork server: a process that has imported the engine once and forks every rank of every job from itself.

A plain fork is unsafe once torch has computed, and spawn would import everything again in every rank.
"""

import multiprocessing.forkserver
import multiprocessing.resource_tracker
import multiprocessing.util
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from lockstep.base.config_error import config_error
from lockstep.base.private_api import cpython
from lockstep.launch.signals import block_signals

PRELOADED: list[str] = []  # by the fork server: engines, and what else a run needs
FIRST = "lockstep.launch.forkserver_preload"
LAST = ("lockstep.launch.worker", "torch._dynamo")
"""The ranks' entry point, and what torch imports at the first step of an optimizer: else a second in each rank.
multiprocessing passes over a module that is not there."""

OF_COMMAND = "LOCKSTEP_COMMAND_FOLDER"  # in the environment of the fork server: the folder of its command


def start_forkserver(*modules: str) -> None:
    """Start the fork server, which imports these modules while this process goes on, unless it has them already."""
    new = [module for module in modules if module not in PRELOADED]
    if not new:
        return
    cpython.kill_forkserver()
    PRELOADED.extend(new)
    multiprocessing.forkserver.set_forkserver_preload([FIRST, *PRELOADED, *LAST])
    ensure_forkserver()
    multiprocessing.util.Finalize(None, cpython.kill_forkserver, exitpriority=-1)  # after everything that needs it


def ensure_forkserver() -> None:
    """Start the fork server again if it has ended; ranks are forked from it alone."""
    with block_signals():
        multiprocessing.resource_tracker.ensure_running()  # starts a process, too, and unblocks signals
    os.environ[OF_COMMAND] = str(private_folder())
    try:
        with block_signals(), hide_main_module():
            multiprocessing.forkserver.ensure_running()
    except OSError as error:
        folder, reason = tempfile.gettempdir(), f"its socket cannot be created there ({error})"
        raise config_error("TMPDIR", folder, f"ranks are forked from a server, and {reason}", "TMPDIR=/tmp") from None
    finally:
        del os.environ[OF_COMMAND]


@contextmanager
def hide_main_module() -> Iterator[None]:
    """Keep new processes from importing the running script: it may call `run` without a `__main__` guard."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def private_folder() -> Path:
    """Return multiprocessing's folder, mode 0700, of sockets and of files where ranks meet.

    This process removes it when it ends; if it is killed, its fork server does.
    """
    try:
        return Path(multiprocessing.util.get_temp_dir())
    except OSError as error:
        reason, hint = f"no temporary folder can be created ({error})", "TMPDIR=FOLDER, of your own, with room"
        raise config_error("TMPDIR", os.environ.get("TMPDIR", "/tmp"), reason, hint) from None
