"""A single rank in the command's process: debuggers stop there, and all else is as in a separate process."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT, Command
from tests.fault_injection.command import leaves
from tests.terminal import CTRL_C, Terminal
from tests.zygote import MARK

SMALL = (
    "data=digits",
    "data.val_size=20",
    "data.test_size=1740",
    "batch_size=8",
    "model.net.hidden=[5]",
    "logger=none",
)
SHORT = (*SMALL, "max_epochs=3", "threads=1", "accelerator=cpu")
LONG = (*SMALL, "max_epochs=2000", "threads=1", "accelerator=cpu")
FAULTY = str(ROOT / "tests" / "fault_injection" / "train.py")

slow = pytest.mark.slow


@pytest.fixture
def at_terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """The command, with a fault of faults.py, at a terminal; its temporary files are gone with it."""
    temporary = tempfile.mkdtemp(prefix="terminal-")
    command, started = Command(tmp_path), []

    def start(*overrides: str, fault: str = "") -> Terminal:
        variables = {"TMPDIR": temporary, "FAULT": fault, "PYTHONPATH": str(ROOT), MARK: command.mark}
        started.append(Terminal(sys.executable, FAULTY, *overrides, "hydra.run.dir=run", folder=tmp_path, **variables))
        return started[-1]

    yield start
    for terminal in started:
        terminal.process.kill()
        terminal.process.wait()
    left = command.survivors()
    for process in left:
        process.kill()
    files = [path for path in Path(temporary).iterdir() if not path.name.startswith("torchinductor_")]  # torch's cache
    assert (left, files) == ([], [])
    shutil.rmtree(temporary)


@pytest.mark.slow
def test_breakpoint_in_a_forward_stops_at_a_prompt(at_terminal: Callable[..., Terminal]) -> None:
    terminal = at_terminal(*SHORT, fault="breakpoint@0:forward:5")
    terminal.wait_for("(Pdb) ")
    assert not psutil.Process(terminal.process.pid).children(), "no fork server, no rank beside it"
    terminal.type(b"p answer + 100\n")
    terminal.wait_for("142")
    terminal.wait_for("(Pdb) ")
    terminal.type(b"c\n")
    terminal.wait_for("went on with 42")
    assert terminal.end() == 0


@slow
def test_ctrl_c_while_it_trains_leaves_a_checkpoint(at_terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    terminal = at_terminal(*LONG)
    terminal.wait_until((tmp_path / "run" / "checkpoints" / "last.ckpt").exists)
    terminal.type(CTRL_C)
    assert terminal.end(timeout=20) == 130
    assert "SIGINT: stopped after step" in terminal.shown
    assert "Traceback" not in terminal.shown


@slow
def test_errors_are_those_of_a_rank(command: Command) -> None:
    words = (*SHORT, "strategy.in_process=true")
    ended = command(sys.executable, FAULTY, *words, FAULT="quit@0:forward:5", PYTHONPATH=str(ROOT))
    assert ended.status == 1
    assert ended.err.startswith("rank 0 failed: ")
    assert ended.err.endswith("SystemExit: 0\n")
    assert ended.err.count("Traceback") == 1


STATE = """
import os, random, signal, sys, threading, warnings
import numpy, torch
from lockstep import run
overrides = sys.argv[1:]
import lightning.pytorch
def state():
    return (
        dict(os.environ), os.getcwd(), [signal.getsignal(number) for number in range(1, 32)], random.getstate(),
        str(numpy.random.get_state()), torch.get_rng_state().tolist(), torch.get_default_dtype(),
        torch.get_num_threads(), threading.active_count(), [*warnings.filters], sys.modules["__main__"],
        torch.is_grad_enabled(), sys.stdout, sys.stderr, torch.distributed.is_initialized(),
    )
torch.set_num_threads(2)
random.seed(1), torch.manual_seed(1), numpy.random.seed(1)
before = state()
digests = {run([*overrides, f"hydra.run.dir={number}"])["digest"] for number in range(2)}
print([index for index, (old, new) in enumerate(zip(before, state())) if old != new], len(digests))
run([*overrides, "hydra.run.dir=apart", "strategy.in_process=false"])
"""


def test_the_process_is_left_as_it_was(command: Command) -> None:
    """As from a notebook, twice, in float64, on one thread of two; a run in a separate process has the same bits."""
    words = (*SHORT, "precision=64-true", "max_epochs=1", "strategy.in_process=true")
    ended = command(sys.executable, "-c", STATE, *words)
    assert ended.status == 0, ended.err
    assert "[] 1\n" in ended.out
    assert leaves(command.folder / "1") == leaves(command.folder / "apart")
