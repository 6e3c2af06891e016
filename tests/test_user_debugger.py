"""A debugger in a user's code: a prompt in a net, breakpoints, post-mortem debugging."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, USER_CODE
from tests.terminal import Terminal
from tests.test_user_code import QUIET
from tests.user_code import strange_nets

JOB = (
    "--config-dir",
    str(USER_CODE / "conf"),
    "model=residual",
    "model._target_=strange_nets.Failing",
    "data=blobs",
    *QUIET,
)
PYTHON = sys.executable
PDB = (PYTHON, "-m", "pdb")


@pytest.fixture
def at_terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    temporary, started = tempfile.mkdtemp(prefix="terminal-"), []

    def start(*arguments: str) -> Terminal:
        command = (*arguments[: arguments.index("train.py")], str(ROOT / "train.py"))
        words = arguments[len(command) :]
        path = os.pathsep.join([str(USER_CODE), str(ROOT)])
        started.append(Terminal(*command, *JOB, *words, folder=tmp_path, PYTHONPATH=path, TMPDIR=temporary))
        return started[-1]

    yield start
    for terminal in started:
        terminal.process.kill()
        terminal.process.wait()
    shutil.rmtree(temporary)


def ask(terminal: Terminal, keys: str, answer: str) -> None:
    """Type at the prompt, and wait for what is shown then."""
    terminal.wait_for("(Pdb) ")
    terminal.type(f"{keys}\n".encode())
    terminal.wait_for(answer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "world"), [("lightning", ("strategy=single",)), ("raw", ("strategy=virtual", "devices=2"))]
)
def test_breakpoint_in_their_net(engine: str, world: tuple[str, ...], at_terminal: Callable[..., Terminal]) -> None:
    terminal = at_terminal(PYTHON, "train.py", f"engine={engine}", *world, "+model.where=breakpoint")
    terminal.wait_for("strange_nets.py")
    ask(terminal, "p self.calls * 100", "300")
    ask(terminal, "c", "test    loss")
    assert terminal.end() == 0


@pytest.mark.slow
def test_under_pdb_their_lines_stop_and_their_errors_are_looked_at(at_terminal: Callable[..., Terminal]) -> None:
    lines = Path(strange_nets.__file__).read_text().splitlines()
    line = 2 + lines.index("        self.calls += 1")
    terminal = at_terminal(*PDB, "train.py", "engine=raw", "strategy=single", "+model.where=layer")
    ask(terminal, f"b strange_nets.py:{line}", "Breakpoint 1")
    ask(terminal, "c", f"strange_nets.py({line})forward()")
    ask(terminal, "p tuple(x.shape)", "(12, 4)")
    ask(terminal, "cl 1", "Deleted")
    ask(terminal, "c", "Entering post mortem debugging")
    ask(terminal, "p tuple(input.shape)", "(12, 8)")
    ask(terminal, "q", "will be restarted")
    ask(terminal, "q", "")
    assert terminal.end() == 0
