"""What a run has in the temporary folder: one folder, gone when the run is, and a sentence where there can be none."""

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
from pathlib import Path

import pytest

from lockstep.launch.private_dir import MARK, make_private_dir, remove_abandoned_dirs, require_safe
from tests.conftest import ROOT, Command
from tests.sockets import tree

TRAIN = (sys.executable, str(ROOT / "train.py"), "data=line", "model=linear", "data.samples=64", "data.val_size=0")
SHORT = (*TRAIN, "max_epochs=1", "logger=none", "engine=raw", "accelerator=cpu", "threads=1")


@pytest.fixture
def temporary() -> Iterator[Path]:
    """As /tmp is; its path is short, as a socket's has to be."""
    with tempfile.TemporaryDirectory(prefix="private-") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


def folder_of(base: Path, name: str, mode: int = 0o700) -> Path:
    folder = base / name
    folder.mkdir()
    (folder / MARK).touch()
    (folder / "inside").mkdir()
    folder.chmod(mode)
    return folder


def test_what_nobody_holds_is_removed_and_nothing_else(tmp_path: Path) -> None:
    base, outside = tmp_path / "base", tmp_path / "outside"
    base.mkdir()
    left = folder_of(base, "lockstep-aaaaaaaa")
    (left / "link").symlink_to(folder_of(tmp_path, "outside"))
    empty = base / "lockstep-eeeeeeee"
    empty.mkdir(mode=0o700)
    living, open_to_all = folder_of(base, "lockstep-bbbbbbbb"), folder_of(base, "lockstep-cccccccc", 0o755)
    named_alike, users = folder_of(base, "lockstep-resultsx"), folder_of(base, "lockstep-experiment")
    (named_alike / MARK).unlink()
    (base / "lockstep-dddddddd").symlink_to(outside)
    kept = {living, open_to_all, named_alike, users, base / "lockstep-dddddddd"}
    if os.geteuid() == 0:
        kept.add(foreign := folder_of(base, "lockstep-ffffffff"))
        os.chown(foreign, 65534, 65534)
    descriptor = os.open(living, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    remove_abandoned_dirs(base)
    assert set(base.iterdir()) == kept
    assert (outside / MARK).is_file()
    os.close(descriptor)
    remove_abandoned_dirs(base)
    assert set(base.iterdir()) == kept - {living}


def test_a_folder_where_others_could_rename_ours_is_not_used(temporary: Path, tmp_path: Path) -> None:
    require_safe(temporary)
    temporary.chmod(0o777)
    with pytest.raises(OSError, match="others may rename there what is yours"):
        require_safe(temporary)
    long = tmp_path / ("x" * 60)
    long.mkdir()
    with pytest.raises(OSError, match="its path is longer than 53 bytes"):
        require_safe(long)
    with pytest.raises(FileNotFoundError):
        require_safe(temporary / "missing")


def test_where_there_is_no_room_no_descriptor_stays(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("lockstep.launch.private_dir.require_room", full)
    before = len([*Path("/dev/fd").iterdir()])
    with pytest.raises(OSError, match="full"):
        make_private_dir(temporary)
    assert len([*Path("/dev/fd").iterdir()]) == before
    assert not list(temporary.iterdir())


KILLED_WHILE_IT_REMOVES = """
import os, signal, sys, tempfile
from itertools import count
from pathlib import Path
from lockstep.launch.private_dir import MARK, make_private_dir, remove_abandoned, remove_abandoned_dirs

base = Path(tempfile.gettempdir())

def remove_until(step, folder):
    steps = count(1)
    def hook(event, _arguments):
        if event in ("os.remove", "os.rmdir") and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    remove_abandoned(folder)
    os._exit(0)

for step in count(1):
    folder, lock = make_private_dir(base)
    for name in "abc":
        (folder / name).mkdir()
        (folder / name / "inside").touch()
        (folder / f"{name}.file").touch()
    os.close(lock)
    if (child := os.fork()) == 0:
        remove_until(step, folder)
    status = os.waitpid(child, 0)[1]
    remove_abandoned_dirs(base)
    assert [*base.iterdir()] == [], (step, [*base.rglob("*")])
    if status == 0:
        break
print(step)
"""


def test_who_is_killed_while_it_removes_leaves_what_the_next_one_removes(command: Command, temporary: Path) -> None:
    ended = command(sys.executable, "-c", KILLED_WHILE_IT_REMOVES, TMPDIR=str(temporary))
    assert (ended.status, ended.err) == (0, "")
    assert int(ended.out) == 1 + 3 * 3 + 2, "once it lived: three folders with a file, three files, the mark, itself"


def killed(command: Command, temporary: Path, after: float, whom: str) -> None:
    """Start a run and send SIGKILL to it, to one of its processes, or to all, after so many seconds."""
    line = (*SHORT[:-4], "max_epochs=100000", *SHORT[-3:], "strategy=ddp", "devices=2")
    process = command.popen(*line, TMPDIR=str(temporary))
    time.sleep(after)
    found = tree(process.pid)
    if whom == "one":
        found = [random.choice(found)]
    for number in [process.pid] if whom == "command" else found:
        os.kill(number, signal.SIGKILL)
    if whom == "one" and found != [process.pid]:  # it ends by itself, or it was the tracker of semaphores
        time.sleep(1)
        process.terminate()
    command.wait(process)
    assert not command.survivors()


SLOW = (pytest.mark.slow, pytest.mark.fresh)
"""Killed while it imports, too: a warm command has that behind it, and trains within a second."""


@pytest.mark.parametrize(
    ("whom", "seconds"),
    [
        ("all", (1.5,)),
        pytest.param("all", (0.5, 1.5, 3.0), marks=SLOW),
        pytest.param("command", (1.5, 5.0), marks=SLOW),
        pytest.param("one", (2.0, 5.0), marks=SLOW),
    ],
)
def test_nothing_is_left_for_good(whom: str, seconds: tuple[float, ...], command: Command, temporary: Path) -> None:
    for after in seconds:
        killed(command, temporary, after, whom)
    taken = temporary / f"torchinductor_{getpass.getuser()}"
    taken.touch()  # as another user may, who guesses the name of torch's cache
    ended = command(*SHORT, "strategy=single", "engine=lightning", TMPDIR=str(temporary))
    assert (ended.status, ended.err) == (0, "")
    assert [*temporary.iterdir()] == [taken]


@pytest.mark.slow
def test_who_cleans_up_spares_those_who_live(command: Command, temporary: Path) -> None:
    """Runs that begin while another trains, and after one was killed. It is whole: it ends as it is asked to."""
    endless = (*SHORT[:-4], "max_epochs=100000", *SHORT[-3:], "strategy=ddp", "devices=2", "hydra.run.dir=endless")
    living = command.popen(*endless, TMPDIR=str(temporary))
    record = command.folder / "endless" / "record.jsonl"
    while not (record.is_file() and '"step"' in record.read_text()):
        assert living.poll() is None
        time.sleep(0.1)
    killed(Command(command.folder), temporary, 3.0, "all")
    for _ in range(2):
        assert command(*SHORT, TMPDIR=str(temporary)).status == 0
    living.terminate()
    ended = command.wait(living)
    assert ended.status == 128 + signal.SIGTERM
    assert "which its checkpoint holds" in ended.err
    assert not list(temporary.iterdir())


def test_a_long_name_of_the_temporary_folder_does_no_harm(command: Command) -> None:
    long = command.folder / ("x" * 150)
    long.mkdir()
    ended = command(*SHORT, "strategy=ddp", "devices=2", TMPDIR=str(long))
    assert (ended.status, ended.err) == (0, "")
    assert not list(long.iterdir())


CLEARED = """
import multiprocessing.forkserver, shutil
from lockstep.launch.private_dir import private_folder
from lockstep.launch.forkserver import ensure_forkserver, start_forkserver

def forks():
    process = multiprocessing.get_context("forkserver").Process(target=print, args=("forked",))
    process.start()
    process.join(10)

start_forkserver("lockstep.launch.forkserver_preload")
for _ in range(2):
    shutil.rmtree(private_folder())
    ensure_forkserver()
    forks()
if {cleared_last}:
    shutil.rmtree(private_folder())
"""


@pytest.mark.parametrize("cleared_last", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_who_clears_the_temporary_folder_spoils_no_later_job(
    cleared_last: bool, command: Command, temporary: Path
) -> None:
    ended = command(sys.executable, "-c", CLEARED.format(cleared_last=cleared_last), TMPDIR=str(temporary))
    assert (ended.status, ended.err) == (0, "")
    assert ended.out == "forked\nforked\n"
    assert not list(temporary.iterdir())


IN_A_NAMESPACE = ("unshare", "--mount", "sh", "-c")


def skip_without_mounts() -> None:
    done = subprocess.run([*IN_A_NAMESPACE, "mount -t tmpfs none /mnt"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs mounts of its own, which this system does not allow: {done.stderr.strip()}")


# The environment and the checkout may lie below /tmp, as in CI: a descriptor outlives the mount that hides them.
HIDING = """
cd /sys
exec 8<"$ENVIRONMENT" 9<"$CHECKOUT"
for one in $0; do
    folder=${one#*=}
    mount -t tmpfs -o size=8k,mode=1777 none "$folder"
    case $ENVIRONMENT in "$folder"/*) mkdir -p "$ENVIRONMENT" && mount -c --bind /proc/self/fd/8 "$ENVIRONMENT" ;; esac
    case $CHECKOUT in "$folder"/*) mkdir -p "$CHECKOUT" && mount -c --bind /proc/self/fd/9 "$CHECKOUT" ;; esac
    case $one in
        ro=*) mount -o remount,ro "$folder" ;;
        open=*) chmod 0777 "$folder" ;;
        *) head -c 8k /dev/zero >"$folder/fill" ;;
    esac
done
export TMPDIR=/mnt
exec "$@" 8<&- 9<&-
"""


@pytest.mark.parametrize(
    ("mounts", "starts", "says"),
    [
        ("ro=/tmp ro=/var/tmp ro=/mnt", "TMPDIR=/mnt: no temporary folder can be used (", "Read-only file system"),
        ("full=/tmp full=/var/tmp full=/mnt", "TMPDIR=/mnt: no temporary folder can be used (", "No space left"),
        ("open=/mnt ro=/tmp ro=/var/tmp", "TMPDIR=/mnt: no temporary folder can be used (/mnt: others may", "chmod +t"),
    ],
)
def test_where_nothing_can_be_written_a_sentence_says_so(
    mounts: str, starts: str, says: str, command: Command, tmp_path: Path
) -> None:
    """In a namespace, since root is denied nothing."""
    skip_without_mounts()
    run = Path.home() / f".lockstep-test-{os.getpid()}"  # tmp_path is hidden by the mounts
    run.mkdir()
    try:
        line = (*SHORT, f"hydra.run.dir={run}/logs")
        ended = command(*IN_A_NAMESPACE, HIDING, mounts, *line, ENVIRONMENT=sys.prefix, CHECKOUT=str(ROOT))
        assert ended.status == 2, ended
        assert ended.err.startswith(starts), ended.err
        assert says in ended.err
        assert ended.err.count("\n") == 1
    finally:
        subprocess.run(["rm", "-r", str(run)], check=True)


@pytest.mark.parametrize("engine", ["raw", pytest.param("lightning", marks=pytest.mark.slow)])
def test_no_run_needs_semaphores(engine: str, command: Command) -> None:
    """Linux keeps them in /dev/shm, which containers may have read-only."""
    skip_without_mounts()
    script = 'mount -t tmpfs -o ro none /dev/shm; exec "$@"'
    ended = command(*IN_A_NAMESPACE, script, "sh", *SHORT, f"engine={engine}", "strategy=ddp", "devices=2")
    assert ended.status == 0, ended.err  # joblib may warn of what it will not do
    assert "  run  " in ended.out
