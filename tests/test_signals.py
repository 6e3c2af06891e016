"""Signals stop training after a step with a checkpoint, from which a run resumes to the same end."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fault_injection.command import SMALL, Faulty, Leaves, leaves

LONG = (*SMALL, "max_epochs=20", "model.net.hidden=[64]", "scheduler=onecycle")
"""A hundred steps."""
WORKERS = (
    *("data=example", "data.dataset.samples=139", "data.loader.num_workers=2", "model=example", "batch_size=8"),
    *("max_epochs=40", "checkpoint.every_n_steps=1", "log_every_n_steps=1", "threads=1", "accelerator=cpu"),
)
"""As many, of a Dataset that workers read."""
slow = pytest.mark.slow


def wait_until(condition: Callable[[], object], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def trains(faulty: Faulty) -> bool:
    """Whether it has saved a checkpoint."""
    return (faulty.run_dir / "checkpoints" / "last.ckpt").is_file()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Leaves:
    """Return what an uninterrupted run leaves."""
    full = Faulty(tmp_path_factory.mktemp("full") / "ddp", "ddp", overrides=LONG)
    ended = full.wait()
    assert (ended.status, ended.err) == (0, "")
    return leaves(full.run_dir)


@pytest.mark.slow
def test_the_first_signal_stops_training_with_a_checkpoint(uninterrupted: Leaves, tmp_path: Path) -> None:
    """tests/test_clusters.py has ranks of another launcher."""
    faulty = Faulty(tmp_path / "run", "ddp", overrides=LONG)
    wait_until(lambda: trains(faulty))
    signalled = time.time()
    os.kill(faulty.process.pid, signal.SIGTERM)
    ended = faulty.wait()
    assert time.time() - signalled < 10
    assert ended.status == 128 + signal.SIGTERM, ended.err
    assert faulty.left() == []
    check_stop(faulty, ended.err)
    again = Faulty(faulty.folder / "again", "ddp", overrides=(*LONG, "resume=true"), run=faulty.run_dir)
    ended = again.wait()
    assert ended.status == 0, ended.err
    assert leaves(faulty.run_dir) == uninterrupted
    assert again.left() == []


def check_stop(faulty: Faulty, err: str) -> None:
    """Check that SIGTERM stopped a run in the middle, with a checkpoint and a curve up to its last step."""
    step = faulty.saved_step()
    assert step is not None
    assert 0 < step < 200
    assert faulty.curve() >= {*range(1, step + 1)}
    assert err.startswith(f"SIGTERM: stopped after step {step}, which its checkpoint holds; "), err
    assert err.count("\n") == 1, err


@slow
def test_timeout_stops_training_with_a_checkpoint(tmp_path: Path) -> None:
    """timeout(1) signals the command, and then its group: two signals count as one, and a rank needs its workers."""
    faulty = Faulty(tmp_path, "ddp", overrides=WORKERS, under=("timeout", "3600"))
    wait_until(lambda: trains(faulty))
    faulty.process.send_signal(signal.SIGALRM)
    ended = faulty.wait()
    assert ended.status == 124
    check_stop(faulty, ended.err)
    assert faulty.left() == []


def test_a_signal_to_all_processes(tmp_path: Path) -> None:
    """Only the command acts on it: the ranks and the fork server ignore it."""
    faulty = Faulty(tmp_path, "ddp", "SIGQUIT@1:validation:2", (*SMALL, "max_epochs=60"))
    ended = faulty.wait()
    assert faulty.fault_time
    assert ended.seconds < 10
    assert ended.status == 128 + signal.SIGQUIT, ended.err
    assert faulty.left() == []
    sentence = f"SIGQUIT: stopped after step {faulty.saved_step()}, which its checkpoint holds; "
    assert ended.err.startswith(sentence), ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.slow
def test_ranks_that_cannot_stop_are_killed_by_a_second_signal(tmp_path: Path) -> None:
    faulty = Faulty(tmp_path, "ddp", "stop@1:step:20", LONG)
    wait_until(lambda: faulty.fault_time)
    faulty.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert faulty.process.poll() is None, "the first waits for them"
    faulty.process.send_signal(signal.SIGTERM)
    signalled = time.time()
    ended = faulty.wait()
    assert time.time() - signalled < 5
    assert (ended.status, faulty.left(), faulty.saved_step()) == (143, [], 18)
    assert ended.err == "SIGTERM: ended at once, without a new checkpoint\n"


@pytest.mark.slow
def test_a_signal_before_training_ends_the_command(tmp_path: Path) -> None:
    faulty = Faulty(tmp_path, "ddp", overrides=LONG)
    wait_until(lambda: [*faulty.temporary.glob("pymp-*/group-*")])
    os.killpg(faulty.process.pid, signal.SIGINT)
    ended = faulty.wait()
    assert ended.status == 128 + signal.SIGINT
    assert ended.err == "SIGINT: ended at once, without a new checkpoint\n"
    assert faulty.left() == []


@pytest.mark.slow
def test_a_killed_command_leaves_nothing(tmp_path: Path) -> None:
    faulty = Faulty(tmp_path, "ddp", overrides=LONG)
    wait_until(lambda: trains(faulty))
    faulty.process.kill()
    faulty.wait()
    assert faulty.left(patience=5) == []
    assert faulty.saved_step() is not None
