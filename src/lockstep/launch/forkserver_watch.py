"""Watch the fork server while ranks depend on it: the command would wait for a stopped server without end."""

import os
import signal
import threading
import time
from collections.abc import Callable

from lockstep.launch.failure import exit_reason
from lockstep.launch.process_table import stopped
from lockstep.private_api import cpython

POLL_INTERVAL, STOPPED_POLLS = 0.5, 6
"""Seconds between two polls, and after how many polls in a row that find it stopped the server is killed."""
EXIT_TIMEOUT = 1.0
"""Seconds within which the kernel reports that a process has ended."""


class ServerWatch:
    """Kills a fork server that stays stopped, as after SIGSTOP; after Ctrl-Z and `fg` it soon runs again.

    needed: whether the command needs an answer of the server's.
    """

    def __init__(self, needed: Callable[[], bool]) -> None:
        self.needed, self.over = needed, threading.Event()
        self.killed: int | None = None
        threading.Thread(target=self._poll, daemon=True).start()

    def end(self) -> None:
        self.over.set()

    def how_server_ended(self) -> str | None:
        """In words; None if it has not within EXIT_TIMEOUT. `ensure_forkserver` starts another."""
        deadline = time.monotonic() + EXIT_TIMEOUT
        while (server := cpython.forkserver_pid()) is not None:
            pid, status = os.waitpid(server, os.WNOHANG)
            if pid:
                cpython.forget_forkserver()
                by_itself = exit_reason(os.waitstatus_to_exitcode(status))
                how = "it was stopped (by SIGSTOP, say)" if pid == self.killed else by_itself
                return f"the fork server, from which all ranks start, is lost: {how}"
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        return None

    def _poll(self) -> None:
        polls = 0
        while not self.over.wait(POLL_INTERVAL):
            server = cpython.forkserver_pid()
            polls = polls + 1 if server is not None and stopped(server) and self.needed() else 0
            if server is not None and polls == STOPPED_POLLS:
                self.killed = server
                os.kill(server, signal.SIGKILL)
