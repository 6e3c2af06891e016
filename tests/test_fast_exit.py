"""A command's end: threads and exit functions finish, output is flushed, and no object is freed."""

import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.command.entry_point import IN_PROCESS

SCRIPT = """
import atexit, sys, threading, time

class Freed:
    def __del__(self, print=print):
        print("freed")

kept = Freed()
{before}
from lockstep.command.entry_point import exit_fast

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
    ended = subprocess.run([sys.executable, *options, str(script)], capture_output=True, text=True, timeout=180)
    return ended.returncode, ended.stdout.splitlines(), ended.stderr.strip()


@pytest.mark.parametrize(("status", "code", "said"), [(None, 0, ""), (130, 130, ""), ("why", 1, "why")])
def test_threads_and_exit_functions_finish(status: object, code: int, said: str, tmp_path: Path) -> None:
    assert run(tmp_path, status) == (code, DONE, said)


def test_objects_are_freed_if_a_rank_ran_in_this_process(tmp_path: Path) -> None:
    """A rank's code may have left a file open, which is written when the interpreter frees it."""
    assert run(tmp_path, 3, before=f"sys.modules[{IN_PROCESS!r}] = sys") == (3, [*DONE, "freed"], "")
