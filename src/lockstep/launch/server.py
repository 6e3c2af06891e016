"""The fork server: a process that has imported the engine once and forks every rank of every job from itself.

A plain fork is unsafe once torch has computed, and spawn would import everything again for every rank: `import
lightning` alone takes seconds. Where there is no fork server, ranks are spawned.
"""

import multiprocessing.forkserver
import multiprocessing.resource_tracker
import multiprocessing.util
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from lockstep.launch.failure import how_it_ended
from lockstep.launch.preserved_process import hide_main_module
from lockstep.launch.private_dir import own_caches, private_folder
from lockstep.launch.process_table import stopped
from lockstep.launch.signals import signals_held

PRELOADED: list[str] = []
"""The engines that the fork server has imported."""
FIRST, LAST = "lockstep.launch.gc_thresholds", "lockstep.launch.gc_freeze"
LATE = ("torch._dynamo",)
"""What torch imports at the first step of an optimizer: a second in each rank, of each job."""
STOPPED_SERVERS: set[int] = set()
"""Process numbers of those that have been ended since they were stopped."""
POLL_INTERVAL, STOPPED_POLLS = 0.5, 6
"""Seconds between two looks for a stopped server, and how many find it so before it is ended."""
EXIT_TIMEOUT = 1.0
"""Seconds within which the kernel tells that a process has ended."""


def start_method() -> str:
    return "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


def start_forkserver(*engines: str) -> None:
    """Start the fork server, which imports the engines while this process goes on.

    Once in the life of a process, and again for an engine that the server has not imported yet.
    """
    new = [engine for engine in engines if engine not in PRELOADED]
    if start_method() != "forkserver" or not new:
        return
    end_forkserver()
    PRELOADED.extend(new)
    multiprocessing.forkserver.set_forkserver_preload([FIRST, *PRELOADED, *LATE, LAST])
    ensure_forkserver()
    end_servers_at_exit()


def ensure_forkserver() -> None:
    """Start the fork server anew if it has ended, or cannot be reached; ranks are forked from it alone."""
    if start_method() != "forkserver":
        return
    address = multiprocessing.forkserver._forkserver._forkserver_address  # type: ignore[attr-defined]
    if address is not None and not Path(address).exists():  # whoever clears the temporary folder took it away
        end_forkserver()
    place_sockets()
    with signals_held():
        multiprocessing.resource_tracker.ensure_running()  # starts a process, too, and lets signals through again
    with signals_held(), in_private_folder(), hide_main_module():  # under pdb the script has no `__spec__` to look at
        multiprocessing.forkserver.ensure_running()


def place_sockets() -> None:
    """Have multiprocessing make its sockets in the private folder, and that anew if whoever clears up took it away.

    The private folder is removed with all that lies in it, so multiprocessing need not; it would remember a folder of
    its own even when that is gone. The name is private. Were it gone, no fork server could be started again in a
    process that has lost its folder: a job would end with FileNotFoundError.
    """
    remembered: dict[str, Any] = getattr(multiprocessing.current_process(), "_config", {})
    if not remembered.get("tempdir") or not Path(remembered["tempdir"]).is_dir():
        remembered["tempdir"] = tempfile.mkdtemp(prefix="pymp-", dir=private_folder())


def how_forkserver_ended() -> str | None:
    """In words; None where it has not, within a moment. `ensure_forkserver` starts another."""
    server: Any = multiprocessing.forkserver._forkserver
    deadline = time.monotonic() + EXIT_TIMEOUT
    while server._forkserver_pid is not None:
        ended, status = os.waitpid(server._forkserver_pid, os.WNOHANG)
        if ended:
            os.close(server._forkserver_alive_fd)
            server._forkserver_pid = server._forkserver_alive_fd = server._forkserver_address = None
            was_stopped = ended in STOPPED_SERVERS
            how = "it was stopped (by SIGSTOP, say)" if was_stopped else how_it_ended(os.waitstatus_to_exitcode(status))
            return f"the fork server, from which all ranks start, is lost: {how}"
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return None


def end_stopped_server(needed: Callable[[], bool], over: threading.Event) -> None:
    """Watch over an attempt: without an end of its server, what waits for it would wait for ever.

    Where it is found stopped at so many looks on end. After Ctrl-Z and `fg` it goes on before the second.
    """
    looks = 0
    while not over.wait(POLL_INTERVAL):
        process = multiprocessing.forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
        looks = looks + 1 if process is not None and stopped(process) and needed() else 0
        if looks == STOPPED_POLLS:
            STOPPED_SERVERS.add(process)
            os.kill(process, signal.SIGKILL)


@contextmanager
def in_private_folder() -> Iterator[None]:
    """The server's socket, and what torch caches as it is imported, lie there."""
    temporary, own = tempfile.tempdir, {key: os.environ.get(key) for key in own_caches()}
    tempfile.tempdir = str(private_folder())
    os.environ.update({**own_caches(), **{key: value for key, value in own.items() if value is not None}})
    try:
        yield
    finally:
        tempfile.tempdir = temporary
        for key, value in own.items():
            if value is None:
                del os.environ[key]


@cache
def end_servers_at_exit() -> None:
    """Once in the life of this process, behind what still needs the two servers."""
    multiprocessing.util.Finalize(None, end_servers, exitpriority=-1)


def end_servers() -> None:
    """End multiprocessing's two servers: left alone, they outlive this process by a moment."""
    end_forkserver()
    end_tracker()


def end_tracker() -> None:
    """It ends when nobody is left who might tell it of a resource; whoever a rank has left behind is not waited for."""
    tracker: Any = multiprocessing.resource_tracker._resource_tracker
    if tracker._pid is None:
        return
    os.close(tracker._fd)
    deadline = time.monotonic() + EXIT_TIMEOUT
    while os.waitpid(tracker._pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(tracker._pid, signal.SIGKILL)
        time.sleep(0.005)
    tracker._fd = tracker._pid = None


def end_forkserver() -> None:
    server: Any = multiprocessing.forkserver._forkserver
    if server._forkserver_pid is not None:
        os.kill(server._forkserver_pid, signal.SIGKILL)
        with suppress(FileNotFoundError):  # of its socket
            server._stop()
        server._forkserver_address = None
