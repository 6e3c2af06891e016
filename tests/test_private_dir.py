"""The private folder: a run leaves nothing in TMPDIR, even if it is killed."""

import errno
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lockstep.base.config_error import ConfigError
from lockstep.launch.forkserver import private_folder
from tests.conftest import ROOT, Command
from tests.test_exposure import tree

TRAIN = (sys.executable, str(ROOT / "train.py"), "data=line", "model=regression", "data.samples=64", "data.val_size=0")
SHORT = (*TRAIN, "max_epochs=1", "logger=none", "accelerator=cpu", "threads=1")


@pytest.fixture
def temporary() -> Iterator[Path]:
    """As /tmp is; its path is short, as a socket's has to be."""
    with tempfile.TemporaryDirectory(prefix="private-") as name:
        yield Path(name)


def test_a_killed_command_leaves_no_file(command: Command, temporary: Path) -> None:
    """While its fork server imports."""
    process = command.popen(*SHORT, "max_epochs=100000", "strategy=ddp", "devices=2", TMPDIR=str(temporary))
    time.sleep(1.5)
    process.kill()
    command.wait(process)
    assert not command.survivors()
    assert not [*temporary.iterdir()]


@pytest.mark.slow
def test_a_lost_process_leaves_no_file(command: Command, temporary: Path) -> None:
    """Its fork server, its resource tracker or a rank is killed."""
    process = command.popen(*SHORT, "max_epochs=100000", "strategy=ddp", "devices=2", TMPDIR=str(temporary))
    is_killed = False
    while not is_killed:
        time.sleep(0.1)
        with suppress(ProcessLookupError):  # of one that has just ended, such as git
            if len(pids := tree(process.pid)) >= 4:
                os.kill(pids[-1], signal.SIGKILL)
                is_killed = True
    time.sleep(1)
    process.terminate()
    command.wait(process)
    assert not command.survivors()
    assert not [*temporary.iterdir()]


def test_an_unusable_tmpdir_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def create() -> str:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("multiprocessing.util.get_temp_dir", create)
    monkeypatch.setenv("TMPDIR", "/opt")
    with pytest.raises(ConfigError, match=r"^TMPDIR=/opt: no temporary folder can be created .*Read-only"):
        private_folder()
