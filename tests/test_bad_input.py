"""Invalid input ends in one sentence with the key, the value and a hint: status 2, nothing started or written."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import lockstep
from lockstep.base.config_error import ConfigError
from tests.conftest import ROOT, Command, Ended

HUGE = str(10**30)
TYPED: list[tuple[str, str, str]] = [
    ("devices=0", "devices=0:", "write devices=1."),
    ("data=image_folder", "data.root: the chosen option needs it", "write data.root=VALUE"),
    ("experiment=null", "experiment=null: there is no such option", "write one of amp_recipe, "),
    ("devices=1,2", "devices=1,2:", "write -m devices=1,2 to run a job for each, or"),
    ("ckpt_path=file", "file: it is no complete checkpoint", "write ckpt_path=last"),
    ("ckpt_path=größe.ckpt", "ckpt_path=größe.ckpt:", "or \"KEY='VALUE'\""),
    ("hydra.run.dir=file", "hydra.run.dir=file:", "write a folder"),
    ("hydra.run.dir=", "hydra.run.dir=:", "write hydra.run.dir=FOLDER"),
    ("", ": this cannot be parsed", "write KEY=VALUE"),
    ("--max_epochs 3", "unrecognized arguments: --max_epochs", "then KEY=VALUE without dashes"),
    ("-m model.lr=8,9", "model.lr=8,9: there is no such key", "write optimizer.lr=8,9"),
    ("data=mnist data.root=nowhere", "data.root=", "write data=digits"),
]
"""One error of each kind: from the shell, Hydra, a schema, a folder and a file."""

VALUES: list[tuple[str, str, str]] = [
    (
        "devices=${paths.nope}",
        "${paths.nope}: devices refers to it",
        "there is no such key",
    ),
    ("hydra.run.dir=null", "hydra.run.dir=null:", "Error merging override"),
    ("schlüssel=1", "schlüssel=1: this cannot be parsed", "write KEY=VALUE"),
    ("strategy=ddp num_nodes=2", "num_nodes=2:", "torchrun --nnodes=2"),
    ("strategy=", "strategy=:", "write one of ddp"),
    ("batch_size=1e400", "batch_size=inf: it takes a whole number", "write batch_size=1"),
    (f"seed={HUGE}", f"seed={HUGE}:", "write seed="),
    ("resume=true", "resume=true: no run below logs/train", "write resume=false"),
]
"""Errors raised before any rank starts, from Python; `tests/test_plan.py` has those of the plan alone."""


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def watched(command: Command, *arguments: str, **environment: str) -> tuple[Ended, set[str]]:
    """Return how a command ended, and the command lines of its grandchildren: the ranks."""
    process = command.popen(*arguments, **environment)
    seen: set[str] = set()
    while process.poll() is None:
        with contextlib.suppress(psutil.Error):
            started = psutil.Process(process.pid).children(recursive=True)
            parents = {one.pid for one in started}  # an orphan has another: the command may end meanwhile
            seen |= {" ".join(one.cmdline()) for one in started if one.ppid() in parents}
        time.sleep(0.05)
    return command.wait(process), seen


def is_refused(command: Command, sentence: str, hint: str, *arguments: str) -> None:
    before = contents(command.folder)
    nowhere = "http://127.0.0.1:9"  # where nobody listens: a test downloads nothing
    ended, started = watched(command, *arguments, http_proxy=nowhere, https_proxy=nowhere)
    assert ended.status == 2, ended.err
    is_slow = {"data=mnist", "ckpt_path=file"} & {*arguments}
    assert ended.out.count("\n") == bool(is_slow), "a download says so, and a checkpoint is read after the title"
    assert ended.err.count("\n") == 1, ended.err
    assert sentence in ended.err
    assert hint in ended.err
    assert "Traceback" not in ended.err
    assert is_slow or not started
    assert contents(command.folder) == before


@pytest.fixture
def typed(command: Command) -> Command:
    """A command in a folder that holds a file and a folder."""
    (command.folder / "file").write_text("mine")
    (command.folder / "folder").mkdir()
    return command


@pytest.mark.parametrize(("line", "sentence", "hint"), VALUES, ids=[case[0] for case in VALUES])
def test_bad_values(line: str, sentence: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as raised:
        lockstep.run(line.split(" "))
    said = str(raised.value)
    assert sentence in said
    assert hint in said
    assert "\n" not in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("line", "sentence", "hint"), TYPED, ids=[case[0] for case in TYPED])
def test_bad_input(typed: Command, line: str, sentence: str, hint: str) -> None:
    is_refused(typed, sentence, hint, sys.executable, str(ROOT / "train.py"), *line.split(" "))


@pytest.fixture
def plain(command: Command) -> Iterator[list[str]]:
    """Return the training command, without root's right to read and write every file."""
    prefix = [] if os.geteuid() else ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    locked = command.folder / "locked"
    locked.mkdir(mode=0o000)
    try:
        if shutil.which((prefix or ["ls"])[0]) is None:
            pytest.skip("needs setpriv, to run a command without root's rights")
        if subprocess.run([*prefix, "ls", str(locked)], capture_output=True).returncode == 0:
            pytest.skip("this user may read everything, and cannot give that up")
        locked.rmdir()
        yield [*prefix, sys.executable, str(ROOT / "train.py")]
    finally:
        for path in command.folder.rglob("*"):
            path.chmod(0o755)


def test_a_logs_folder_that_is_not_writable(command: Command, plain: list[str]) -> None:
    (command.folder / "logs").mkdir(mode=0o555)
    is_refused(command, "what the run leaves cannot be written there (Permission denied)", "write a folder", *plain)
    is_refused(command, "hydra.sweep.dir=logs/", "write a folder", *plain, "-m")


def test_unusual_input_that_is_valid(command: Command) -> None:
    """An integral float, a key twice, a group as a mapping. And `watched` sees the ranks of a run."""
    odd = ("batch_size=1e1", "seed=1", "seed=2", "devices=1.0", "data=points", "model={}", "model.net.hidden=[2]")
    train = (sys.executable, str(ROOT / "train.py"), *odd, "max_epochs=20", "logger=none")
    ended, started = watched(command, *train)
    assert (ended.status, ended.err) == (0, "")
    config = (ended.run_dir / "config.yaml").read_text()
    assert "\nbatch_size: 10.0\n" in config
    assert "seed: 2\n" in config
    assert started
