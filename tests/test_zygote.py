"""A command that is forked from the warm process behaves like a new interpreter: its state, its output, its files."""

import json
import signal
import sys

import pytest

from tests.conftest import Command

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


@pytest.mark.parametrize("how", ["script", "-m"])
def test_a_warm_command_is_like_a_fresh_one(command: Command, how: str) -> None:
    path = command.folder / "probe.py"
    path.write_text(STATE + "print(json.dumps(state()))")
    line = {"script": (str(path),), "-m": ("-m", "probe")}[how]
    runs = (command, command.fresh)
    both = [run(sys.executable, *line, "a=b", "", PYTHONPATH="/somewhere", VARIABLE="1") for run in runs]
    assert [(ended.status, ended.err) for ended in both] == [(0, ""), (0, "")]
    warm, fresh = (json.loads(ended.out) for ended in both)
    assert warm == fresh
    assert warm["environment"]["VARIABLE"] == "1"


def test_a_command_has_the_exit_status_of_its_signal(command: Command) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        process = command.popen(sys.executable, "-c", "import time; print(flush=True); time.sleep(60)")
        assert process.stdout is not None
        process.stdout.readline()
        assert process.pid in [each.pid for each in command.alive()]
        process.send_signal(number)
        ended = command.wait(process)
        assert ended.status == -number
        assert ("KeyboardInterrupt" in ended.err) is (number == signal.SIGINT)


def test_options_of_the_interpreter_start_a_new_one(command: Command) -> None:
    code = "import sys; print(sys.flags.utf8_mode, 'torch' in sys.modules)"
    assert command(sys.executable, "-c", code).out == "0 True\n"
    assert command(sys.executable, "-c", code, PYTHONUTF8="1").out == "1 False\n"
