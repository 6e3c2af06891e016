"""The private folder of a run: removed with the run or by the next one, and an error if none can be created."""

import errno
import fcntl
import getpass
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lockstep.base.config_error import ConfigError
from lockstep.launch.private_dir import private_folder, remove_abandoned_dirs
from tests.conftest import ROOT, Command
from tests.sockets import tree

TRAIN = (sys.executable, str(ROOT / "train.py"), "data=line", "model=regression", "data.samples=64", "data.val_size=0")
SHORT = (*TRAIN, "max_epochs=1", "logger=none", "accelerator=cpu", "threads=1")


@pytest.fixture
def temporary() -> Iterator[Path]:
    """As /tmp is; its path is short, as a socket's has to be."""
    with tempfile.TemporaryDirectory(prefix="private-") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


def test_only_abandoned_folders_are_removed(tmp_path: Path) -> None:
    base, outside = tmp_path / "base", tmp_path / "outside"

    def make(letter: str) -> Path:
        folder = base / f"lockstep-tmp-{letter * 8}"
        (folder / "inside").mkdir(parents=True)
        return folder

    outside.mkdir()
    (make("a") / "link").symlink_to(outside)
    locked, link, users = make("b"), base / "lockstep-tmp-dddddddd", base / "lockstep-experiment"
    link.symlink_to(outside)
    users.mkdir(mode=0o700)
    others = {link, users}
    if os.geteuid() == 0:
        others.add(foreign := make("f"))
        os.chown(foreign, 65534, 65534)
    descriptor = os.open(locked, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    remove_abandoned_dirs(base)
    assert set(base.iterdir()) == others | {locked}
    assert outside.is_dir()
    os.close(descriptor)
    remove_abandoned_dirs(base)
    assert set(base.iterdir()) == others


def kill(command: Command, temporary: Path, after: float, target: str) -> None:
    """Start a run and, after so many seconds, kill one of its processes, or all of them."""
    line = (*SHORT[:-4], "max_epochs=100000", *SHORT[-3:], "strategy=ddp", "devices=2")
    process = command.popen(*line, TMPDIR=str(temporary))
    time.sleep(after)
    pids = tree(process.pid) if target == "all" else [random.choice(tree(process.pid))]
    for pid in pids:
        with suppress(ProcessLookupError):  # one of an import, say, has ended since
            os.kill(pid, signal.SIGKILL)
    if target == "one" and pids != [process.pid]:  # the command ends by itself, unless it was the resource tracker
        time.sleep(1)
        process.terminate()
    command.wait(process)
    assert not command.survivors()


SLOW = (pytest.mark.slow, pytest.mark.fresh)
"""Kills during imports, too, which a warm command has done already."""


@pytest.mark.parametrize(
    ("target", "seconds"),
    [("all", (1.5,)), pytest.param("all", (0.5, 3.0), marks=SLOW), pytest.param("one", (2.0, 5.0), marks=SLOW)],
)
def test_the_next_run_removes_what_a_killed_one_left(
    target: str, seconds: tuple[float, ...], command: Command, temporary: Path
) -> None:
    for after in seconds:
        kill(command, temporary, after, target)
    cache = temporary / f"torchinductor_{getpass.getuser()}"
    cache.touch()  # another user may guess the name of torch's cache, and create it
    ended = command(*SHORT, "strategy=single", "engine=lightning", TMPDIR=str(temporary))
    assert (ended.status, ended.err) == (0, "")
    assert [*temporary.iterdir()] == [cache]


def test_a_long_tmpdir_is_replaced(command: Command) -> None:
    long = command.folder / ("x" * 150)
    long.mkdir()
    ended = command(*SHORT, "strategy=ddp", "devices=2", TMPDIR=str(long))
    assert (ended.status, ended.err) == (0, "")
    assert not list(long.iterdir())


def test_an_unusable_tmpdir_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_base: Path) -> Path:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("lockstep.launch.private_dir.FOLDERS", {})
    monkeypatch.setattr("lockstep.launch.private_dir.make_private_dir", fail)
    monkeypatch.setenv("TMPDIR", "/opt")
    with pytest.raises(ConfigError, match=r"^TMPDIR=/opt: no temporary folder can be created .* Read-only file system"):
        private_folder()


def test_an_unsafe_tmpdir_is_refused(command: Command, temporary: Path) -> None:
    """Without the sticky bit others could put files of theirs in place of a run's."""
    temporary.chmod(0o777)
    ended = command.fresh(*SHORT, "strategy=ddp", "devices=2", TMPDIR=str(temporary))
    assert ended.status == 2
    reason = f"no temporary folder can be created (other users may rename files in {temporary}: it lacks the sticky bit"
    assert reason in ended.err
    assert not list(temporary.iterdir())


IN_A_NAMESPACE = ("unshare", "--mount", "sh", "-c")


@pytest.mark.slow
def test_no_run_needs_semaphores(command: Command) -> None:
    """Linux keeps them in /dev/shm, which containers may have read-only."""
    done = subprocess.run([*IN_A_NAMESPACE, "mount -t tmpfs none /mnt"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs mounts of its own, which this system does not allow: {done.stderr.strip()}")
    script = 'mount -t tmpfs -o ro none /dev/shm; exec "$@"'
    ended = command(*IN_A_NAMESPACE, script, "sh", *SHORT, "strategy=ddp", "devices=2")
    assert (ended.status, ended.err) == (0, "")
    assert "  run  " in ended.out
