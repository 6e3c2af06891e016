"""A command that is forked from the warm process behaves like a new interpreter: its state, its output, its files."""

import json
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


@pytest.mark.slow
def test_a_warm_command_is_like_a_fresh_one(command: Command) -> None:
    path = command.folder / "probe.py"
    path.write_text(STATE + "print(json.dumps(state()))")
    runs = (command, command.fresh)
    both = [run(sys.executable, str(path), "a=b", "", PYTHONPATH="/somewhere", VARIABLE="1") for run in runs]
    assert [(ended.status, ended.err) for ended in both] == [(0, ""), (0, "")]
    warm, fresh = (json.loads(ended.out) for ended in both)
    assert warm == fresh
    assert warm["environment"]["VARIABLE"] == "1"
