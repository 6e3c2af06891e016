"""Fork commands from one warm process: half a second each instead of five."""

import ast
import contextlib
import json
import multiprocessing.util
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lockstep.launch import forkserver
from tests.zygote_process import Spare

PROGRAM = Path(__file__).with_name("zygote_process.py")
CLIENT = Path(__file__).with_name("zygote_client.py")
SOURCES = Path(__file__).parents[1] / "src" / "lockstep"
MARK = "LOCKSTEP_TEST_MARK"
READ_AT_START = ("PYTHON", "LD_", "OMP_", "MKL_", "KMP_", "GOMP_", "MALLOC_", "GLIBC_", "TORCH_", "LC_", "LANG")
"""Prefixes of variables that an interpreter or a library reads when it is loaded."""
PATH = "PYTHONPATH"
STARTING = threading.Lock()
ENVIRONMENT: dict[str, str] = {}
"""The variables at the beginning of the tests; the one that first needs the warm process may have changed some."""


def imported_by(folder: Path) -> Iterator[str]:
    """Return the names that the sources below a folder import."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


class Zygote:
    """The warm process, which is ready when its first answer comes."""

    def __init__(self) -> None:
        self.environment = dict(ENVIRONMENT)
        self.asking = threading.Lock()
        self.control, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.clients = tempfile.TemporaryDirectory(prefix="zygote-")
        for name in ("python", "torchrun"):
            program = Path(self.clients.name) / name
            program.write_text(f"#!{sys.executable} -IS\n{CLIENT.read_text()}")
            program.chmod(0o755)
        with there, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(f"{self.clients.name}/socket")
            listener.listen()
            requests, spare = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            numbers = (there.fileno(), listener.fileno(), requests.fileno())
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), *map(str, numbers), *sorted({*imported_by(SOURCES)})],
                env={name: value for name, value in self.environment.items() if name != PATH} | {MARK: "0" * 32},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=numbers,
                start_new_session=True,
            )
            requests.close()
        self.spare = Spare(spare, self.process.pid)

    def can_run(self, arguments: tuple[str, ...], environment: Mapping[str, str]) -> bool:
        """Whether a copy of the warm process behaves like a new interpreter."""
        if len(arguments) < 2 or arguments[0] != sys.executable:
            return False
        changed = {name for name, value in {*environment.items()} ^ {*self.environment.items()}} - {PATH, "PYTHON_EXEC"}
        script = arguments[1]
        return (Path(script).suffix == ".py" or script in ("-c", "-m")) and not any(
            name.startswith(READ_AT_START) for name in changed
        )

    def ask(self, request: Mapping[str, Any], streams: list[int]) -> int:
        with self.asking:
            socket.send_fds(self.control, [json.dumps(request).encode()], streams)
            answer = self.control.recv(100)
        assert answer, "the warm process has ended"
        return int(answer)

    @property
    def for_scripts(self) -> dict[str, Any]:
        """Variables of a script or of torchrun by which `python` and `torchrun` are forked from the warm process."""
        folder = self.clients.name
        return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHON_EXEC": f"{folder}/python"}


@cache
def _only() -> Zygote:
    return Zygote()


def zygote() -> Zygote:
    """Return the only one; `cache` itself holds no lock."""
    with STARTING:
        return _only()


@contextlib.contextmanager
def one_forkserver(*engines: str) -> Iterator[None]:
    """Share one fork server between all jobs of this process: the parent of the warm process; no run ends it."""
    ENVIRONMENT.update(os.environ)
    start, start_new = forkserver.start_forkserver, multiprocessing.util.spawnv_passfds
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forkserver, "start_forkserver", lambda *others: start(*others, *engines))
        patch.setattr("lockstep.launch.start.kill_forkserver", lambda: None)
        patch.setattr(
            "multiprocessing.util.spawnv_passfds",
            lambda *arguments: zygote().spare.instead_of(start_new)(*arguments),
        )
        yield


class Forked(subprocess.Popen[str]):
    """A command that the warm process has forked, with the interface of Popen.

    The warm process is its parent and reports its exit status.
    """

    def __init__(self, warm: Zygote, arguments: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.warm = warm
        super().__init__(
            arguments,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _execute_child(self, args: Any, *rest: Any) -> None:
        """Fork the command with the pipes that Popen has opened."""
        (cwd, env), pipes = rest[4:6], rest[9:15]
        stdin, _, _, stdout, _, stderr = pipes
        request = {"arguments": args[1:], "folder": str(cwd), "environment": dict(env)}
        self.pid = self.warm.ask(request, [stdin, stdout, stderr])
        self.ended = os.pidfd_open(self.pid)
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *_arguments: Any, **_options: Any) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._wait(0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self.ended, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(self.warm.ask({"wait": self.pid}, []))
            os.close(self.ended)
        return self.returncode
