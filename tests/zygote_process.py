"""The warm process from which the tests fork commands: it has imported what a command and its ranks import.

It has torch, Lightning and Hydra, and nothing of Lockstep, which each command imports from its path. A command gets its
session, folder, environment, streams, arguments and the usual signals. So does its first fork server: a copy of the
command, made before the command began, takes the place of a new interpreter. The parent of the warm process is the
fork server of the tests in the same way.
"""

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import multiprocessing.process
import multiprocessing.util
import os
import random
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

MARK = "LOCKSTEP_TEST_MARK"
LATE = ("torch.distributed.fsdp", "torch.optim.adamw", "torch._dynamo", "torch.distributed.run")
"""Modules that torch imports during training, and torchrun."""
MOST = 2**20
"""The size of the longest request in bytes."""
HIGH = 200
"""Descriptors from here on are free."""
REQUESTS = 3
"""The only other descriptor of a copy that waits."""
FORK_SERVER = "from multiprocessing.forkserver import main"
NAMESPACES = 0x00020000 | 0x04000000 | 0x40000000
"""CLONE_NEWNS, CLONE_NEWUTS and CLONE_NEWNET."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def warm_up(names: Iterable[str]) -> None:
    """Import what Lockstep imports from other packages, but for those that few commands need."""
    for name in (*names, *LATE):
        if name.partition(".")[0] not in ("lockstep", "optuna") and not name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    gc.collect()
    gc.freeze()


def serve(control: socket.socket, listener: socket.socket) -> Callable[[], object]:
    """Fork a command for each request and report its exit status; return the function to run in the command.

    A request is {"arguments", "folder", "environment"} with the three streams, or {"wait": pid}. One of a
    zygote_client.py has its own connection and its pid as "client"; its command is killed when it ends.
    """
    clients: dict[socket.socket, int] = {}
    ends: dict[int, tuple[socket.socket, int]] = {}
    while True:
        for source in select.select([control, listener, *clients, *ends], [], [])[0]:  # type: ignore[type-var]
            if isinstance(source, int):
                client, pid = ends.pop(source)
                clients.pop(client, None)
                with contextlib.suppress(OSError):
                    client.send(str(os.waitpid(pid, 0)[1]).encode())
                client.close()
                os.close(source)
            elif source in clients:
                os.kill(clients.pop(source), signal.SIGKILL)
            elif source in (control, listener):
                asking = source if source is control else source.accept()[0]
                message, streams, _flags, _address = socket.recv_fds(asking, MOST, 16)
                if not message:  # the tests are over
                    os._exit(0)
                request = json.loads(message)
                if "wait" in request:
                    answer = os.waitpid(request["wait"], 0)[1]
                elif (answer := os.fork()) == 0:
                    return become(streams=streams, **request)
                for stream in streams:
                    os.close(stream)
                asking.send(str(answer).encode())
                if asking is not control:
                    clients[asking] = answer
                    ends[os.pidfd_open(answer)] = asking, answer


def search_path(environment: dict[str, str]) -> list[str]:
    """Return sys.path of an interpreter with this environment, without its first entry."""
    first = [*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    return [*dict.fromkeys([*first, *sys.path[1:]])]


def become(
    arguments: list[str], folder: str, environment: dict[str, str], streams: list[int], client: int = 0
) -> Callable[[], object]:
    """Turn this process into the command; return the function that runs it."""
    os.setsid()
    mark_memory(environment[MARK])
    if client and not Path(f"/proc/{client}/ns/net").samefile("/proc/self/ns/net"):  # of tests/netns.py
        assert ctypes.CDLL(None).setns(os.pidfd_open(client), NAMESPACES) == 0
    place_descriptors(dict(enumerate(streams)))
    os.chdir(folder)
    multiprocessing.process.ORIGINAL_DIR = folder  # type: ignore[attr-defined]
    os.environ.clear()
    os.environ.update(environment)
    if threads := environment.get("OMP_NUM_THREADS"):  # torch has read it
        sys.modules["torch"].set_num_threads(int(threads))
    tempfile.tempdir = None
    random.seed()
    sys.modules["numpy"].random.seed()
    multiprocessing.current_process().authkey = os.urandom(32)
    path = search_path(environment)
    spare = copy_of_command()
    atexit.register(spare.end)
    start_new = multiprocessing.util.spawnv_passfds
    multiprocessing.util.spawnv_passfds = spare.instead_of(start_new)
    return program(arguments, path)


def mark_memory(mark: str) -> None:
    """Write the mark into the environment that /proc shows for this process, as after an exec.

    It identifies the command's descendants, even in another session.
    """
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    address = getenv(MARK.encode())
    assert len(ctypes.string_at(address)) == len(mark)
    ctypes.memmove(address, mark.encode(), len(mark))


def place_descriptors(wanted: dict[int, int]) -> None:
    """Move each descriptor to its number, and close all others."""
    copies = {number: fcntl.fcntl(now, fcntl.F_DUPFD, HIGH) for number, now in wanted.items()}
    os.closerange(0, HIGH)
    for number, now in copies.items():
        os.dup2(now, number, inheritable=True)
    os.closerange(HIGH, HIGH + 100)


def program(arguments: list[str], path: list[str]) -> Callable[[], object]:
    """Return a function that runs a script, `-c` or `-m`; `path` is sys.path after the first entry."""
    if arguments[0] == "-u":
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
        del arguments[0]
    first, *rest = arguments
    script = ModuleType("__main__")
    script.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = script
    if first == "-m":
        name = rest[0]
        sys.argv, sys.path[:] = ["-m", *rest[1:]], [os.getcwd(), *path]  # noqa: PTH109
        return lambda: runpy._run_module_as_main(name)  # type: ignore[attr-defined]
    if first == "-c":
        sys.argv, sys.path[:] = ["-c", *rest[1:]], ["", *path]
        code = compile(rest[0], "<string>", "exec")
    else:
        sys.argv, sys.path[:] = arguments, [str(Path(first).absolute().parent), *path]
        script.__file__ = first
        code = compile(Path(first).read_bytes(), first, "exec")
    return lambda: exec(code, script.__dict__)


class Spare:
    """A process that waits to be the fork server of this one: a warm copy, made before anything else was imported.

    here: the socket for the request, whose other end the copy waits at.
    """

    def __init__(self, here: socket.socket, pid: int) -> None:
        self.here, self.pid, self.used = here, pid, False

    def instead_of(self, start_new: Callable[[Any, Any, Any], int]) -> Callable[..., int]:
        """Return a function that starts the fork server from the copy, and other programs as usual."""

        def start(executable: str, arguments: list[str], descriptors: list[int]) -> int:
            code = arguments[-1]
            if self.used or not code.startswith(FORK_SERVER) or not streams_open():
                return start_new(executable, arguments, descriptors)
            self.used = True
            request = server_request(code, descriptors)
            socket.send_fds(self.here, [json.dumps(request).encode()], request["numbers"])
            self.here.close()
            return self.pid

        return start

    def end(self) -> None:
        """End the copy if it was not used."""
        if not self.used:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def copy_of_command() -> Spare:
    """Fork the spare of a command that has not begun."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here:  # the lowest numbers are the command's
        here = socket.socket(fileno=fcntl.fcntl(here, fcntl.F_DUPFD_CLOEXEC, HIGH - 1))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # they are sent to all processes of the command
    pid = os.fork()
    if pid == 0:
        ends_with_parent(signal.SIGKILL)
        be_spare(there)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    there.close()
    return Spare(here, pid)


def be_spare(there: socket.socket) -> NoReturn:
    """Wait for the request, and be the fork server that it describes; end if none can come."""
    place_descriptors(dict.fromkeys(range(3), os.open(os.devnull, os.O_RDWR)) | {REQUESTS: there.detach()})
    message, descriptors, _flags, _address = socket.recv_fds(socket.socket(fileno=REQUESTS), MOST, 16)
    if not message:
        os._exit(0)
    ends_with_parent(0)
    end_with(as_fork_server(json.loads(message), descriptors))


def server_request(code: str, descriptors: list[int]) -> dict[str, Any]:
    """Describe the fork server of this process; the three streams and these descriptors go with the request."""
    ignored = [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN]
    return {
        "code": code,
        "environment": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109
        "numbers": [0, 1, 2, *descriptors],
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "ignored": [int(number) for number in ignored],
    }


def as_fork_server(request: dict[str, Any], descriptors: list[int]) -> Callable[[], object]:
    """Turn this process into the requested fork server; return the function that runs it."""
    place_descriptors(dict(zip(request["numbers"], descriptors, strict=True)))
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
    return program(["-c", request["code"]], search_path(request["environment"]))


def ends_with_parent(number: int) -> None:
    """End this process by a signal when its parent ends; 0: do not."""
    ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG


def streams_open() -> bool:
    """Whether the three streams are open, so that they can be handed on."""
    try:
        return all(os.fstat(number) for number in range(3))
    except OSError:
        return False


def end_with(run: Callable[[], object]) -> NoReturn:
    """Run a function and exit as an interpreter does, without freeing memory."""
    status: Any = 0
    try:
        run()
    except SystemExit as ended:
        status = ended.code
    except BaseException as error:
        frames = error.__traceback__ and error.__traceback__.tb_next  # without those of this file
        error.__traceback__ = frames and frames.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    if status is not None and not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit((status or 0) & 0xFF)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # they are blocked while a fork server starts
    warm_up(sys.argv[4:])
    control, listener, requests = (socket.socket(fileno=int(number)) for number in sys.argv[1:4])
    if (child := os.fork()) == 0:
        if os.fork():  # a fork server reaps no other child
            os._exit(0)
        end_with(serve(control, listener))
    os.waitpid(child, 0)
    be_spare(requests)
