"""A command at a terminal of its own, as a person has it: what is shown is read, and keys are typed, Ctrl-C too."""

import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

CTRL_C = b"\x03"


class Terminal:
    """Its session's leader is the command, so that Ctrl-C reaches it and all that it started."""

    def __init__(self, *arguments: str, folder: Path, **environment: str) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            arguments,
            cwd=folder,
            env={**os.environ, "TERM": "dumb", **environment},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.shown, self.read = "", 0

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def wait_for(self, text: str, timeout: float = 180) -> None:
        """Until the text is shown, behind what was waited for before."""
        self.wait_until(lambda: text in self.shown[self.read :], timeout)
        self.read = self.shown.index(text, self.read) + len(text)

    def wait_until(self, condition: Callable[[], bool], timeout: float = 180) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline or not self._look():
                self.process.kill()
                pytest.fail(f"waited in vain; it shows\n{self.shown}")

    def end(self, timeout: float = 180) -> int:
        """The exit status."""
        deadline = time.monotonic() + timeout
        while self._look():
            if time.monotonic() > deadline:
                self.process.kill()
                pytest.fail(f"not ended after {timeout} s; it showed\n{self.shown}")
        os.close(self.master)
        return self.process.wait(10)

    def _look(self) -> bool:
        """Take what is shown; whether there may be more."""
        if not select.select([self.master], [], [], 0.1)[0]:
            return True
        try:
            part = os.read(self.master, 65536)
        except OSError:  # Linux's end of a terminal
            return False
        self.shown += part.decode(errors="replace").replace("\r\n", "\n")
        return bool(part)
