"""A debugger in a user's code: breakpoints and post-mortem debugging (prompts in tests/test_in_process.py)."""

import os
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, USER_CODE
from tests.terminal import Terminal
from tests.test_user_code import QUIET
from tests.user_code import strange_nets

JOB = (
    *("--config-dir", str(USER_CODE / "conf"), "model=residual", "model._target_=strange_nets.Failing"),
    *("+model.where=layer", "data=blobs", "engine=raw", "strategy=single", *QUIET),
)


@pytest.mark.slow
def test_pdb_stops_in_a_net_and_enters_post_mortem_debugging(tmp_path: Path) -> None:
    path = os.pathsep.join([str(USER_CODE), str(ROOT)])
    command = (sys.executable, "-m", "pdb", str(ROOT / "train.py"), *JOB)
    terminal = Terminal(*command, folder=tmp_path, PYTHONPATH=path, TMPDIR=str(tmp_path))
    lines = Path(strange_nets.__file__).read_text().splitlines()
    line = 2 + lines.index("        self.calls += 1")
    dialogue = {
        f"b strange_nets.py:{line}": "Breakpoint 1",
        "c": f"strange_nets.py({line})forward()",
        "p tuple(x.shape)": "(12, 4)",
        "cl 1": "Deleted",
        "continue": "Entering post mortem debugging",
        "p tuple(input.shape)": "(12, 8)",
        "q": "will be restarted",
        "quit": "",
    }
    try:
        for typed, answer in dialogue.items():
            terminal.wait_for("(Pdb) ")
            terminal.type(f"{typed}\n".encode())
            terminal.wait_for(answer)
        assert terminal.end() == 0
    finally:
        terminal.process.kill()
        terminal.process.wait()
