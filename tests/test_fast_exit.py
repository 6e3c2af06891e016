"""A command's end: what is registered and printed is done, and nothing is freed object by object."""

import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.fast_exit import IN_PROCESS

SCRIPT = """
import atexit, sys, threading, time

class Freed:
    def __del__(self, print=print):
        print("freed")

kept = Freed()
{before}
from lockstep.fast_exit import exit_fast

def in_a_thread():
    time.sleep(0.2)
    print("a thread's")

threading.Thread(target=in_a_thread).start()
atexit.register(print, "registered")
print("printed")
exit_fast({status!r})
raise SystemExit({status!r})
"""
DONE = ["printed", "a thread's", "registered"]


def run(folder: Path, status: object, *options: str, before: str = "") -> tuple[int, list[str], str]:
    script = folder / "script.py"
    script.write_text(SCRIPT.format(status=status, before=before))
    ended = subprocess.run([sys.executable, *options, str(script)], capture_output=True, text=True, timeout=60)
    return ended.returncode, ended.stdout.splitlines(), ended.stderr.strip()


@pytest.mark.parametrize(
    ("status", "code", "said"), [(None, 0, ""), (0, 0, ""), (2, 2, ""), (130, 130, ""), ("why", 1, "why")]
)
def test_what_is_to_be_done_is_done(status: object, code: int, said: str, tmp_path: Path) -> None:
    assert run(tmp_path, status) == (code, DONE, said)


def test_what_ran_here_is_freed_as_ever(tmp_path: Path) -> None:
    """A rank's code may have left a file open, which is written when the interpreter frees it."""
    assert run(tmp_path, 3, before=f"sys.modules[{IN_PROCESS!r}] = sys") == (3, [*DONE, "freed"], "")


def test_who_has_called_the_program_goes_on(tmp_path: Path) -> None:
    code, lines, _ = run(tmp_path, 0, "-m", "cProfile")
    assert code == 0
    assert lines[:1] == DONE[:1]
    assert any("function calls" in line for line in lines)
