"""A command that is forked from the warm process behaves like a new interpreter: its state, its output, its files."""

import json
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT, Command

STATE = """
import json, multiprocessing, os, signal, sys

def state():
    return {
        "arguments": sys.argv, "path": sys.path, "folder": os.getcwd(), "environment": dict(os.environ),
        "name": sys.modules["__main__"].__name__, "file": getattr(sys.modules["__main__"], "__file__", None),
        "signals": {int(n): str(signal.getsignal(n)) for n in signal.valid_signals()},
        "blocked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
        "open": [n for n in range(100) if os.path.exists(f"/proc/self/fd/{n}")],
        "streams": [
            (stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering, stream.write_through)
            for stream in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
        "imported": sorted(name for name in sys.modules if name.startswith("lockstep")),
        "umask": os.umask(0o22), "flags": str(sys.flags),
    }
"""
SERVER = """
import multiprocessing, signal, states
from lockstep.launch.forkserver import start_forkserver

def send_state(pipe):
    pipe.send(states.state())

if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    start_forkserver("lockstep.engine")
    reader, writer = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("forkserver").Process(target=send_state, args=(writer,))
    process.start()
    print(states.json.dumps(reader.recv()))
    process.join()
"""
LEAVES_BEHIND = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    os.closerange(0, 3)
    if os.fork() == 0:
        if sys.argv[1] == "exec":
            os.execv("/bin/sleep", ["sleep", "60"])
        os.environ.clear()
        time.sleep(60)
    os._exit(0)
os.wait()
"""


def script(folder: Path, **files: str) -> str:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return str(folder / "probe.py")


def states(command: Command, *arguments: str, **environment: str) -> list[dict[str, object]]:
    """Return the state that a program prints, warm and fresh."""
    both = [run(sys.executable, *arguments, timeout=90, **environment) for run in (command, command.fresh)]
    assert [(ended.status, ended.err) for ended in both] == [(0, ""), (0, "")]
    return [json.loads(ended.out) for ended in both]


@pytest.mark.parametrize("how", ["script", "-c", "-m"])
def test_a_warm_command_is_like_a_fresh_one(command: Command, how: str) -> None:
    path = script(command.folder, probe=STATE + "print(json.dumps(state()))")
    line = {"script": (path,), "-c": ("-c", Path(path).read_text()), "-m": ("-m", "probe")}[how]
    warm, fresh = states(command, *line, "a=b", "", PYTHONPATH="/somewhere", VARIABLE="1")
    assert warm == fresh
    assert warm["environment"]["VARIABLE"] == "1"  # type: ignore[index]


@pytest.mark.slow
def test_a_rank_of_a_warm_command_is_like_that_of_a_fresh_one(command: Command) -> None:
    path = script(command.folder, probe=SERVER, states=STATE)
    warm, fresh = states(command, path, PYTHONPATH=str(ROOT / "src"))
    for state in (warm, fresh):
        environment = state["environment"]
        assert isinstance(environment, dict)
        environment.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)  # Lightning sets it where it is imported
    assert warm == fresh


@pytest.mark.parametrize("how", ["exec", "fork"])
def test_processes_that_a_command_leaves_behind_are_listed(command: Command, how: str) -> None:
    path = script(command.folder, probe=LEAVES_BEHIND)
    assert command(sys.executable, path, how).status == 0
    left = command.survivors(patience=0.5)
    for process in left:
        process.kill()
    assert len(left) == 1


def test_a_command_has_the_exit_status_of_its_signal(command: Command) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        process = command.popen(sys.executable, "-c", "import time; print(flush=True); time.sleep(60)")
        assert process.stdout is not None
        process.stdout.readline()
        assert process.poll() is None
        assert psutil.Process(process.pid).environ()["LOCKSTEP_TEST_MARK"] == command.mark
        process.send_signal(number)
        ended = command.wait(process)
        assert ended.status == -number
        assert ("KeyboardInterrupt" in ended.err) is (number == signal.SIGINT)


def test_options_of_the_interpreter_start_a_new_one(command: Command) -> None:
    code = "import sys; print(sys.flags.utf8_mode, 'torch' in sys.modules)"
    assert command(sys.executable, "-c", code).out == "0 True\n"
    assert command(sys.executable, "-c", code, PYTHONUTF8="1").out == "1 False\n"
    assert command(sys.executable, "-X", "utf8", "-c", code).out == "1 False\n"
