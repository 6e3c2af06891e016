"""Invalid input ends in one sentence with the key, the value and a hint: status 2, nothing written."""

from pathlib import Path

import pytest

import lockstep
from lockstep.base.config_error import ConfigError
from lockstep.command.job import with_earlier_words
from tests.conftest import Command

TYPED: list[tuple[str, str, str]] = [
    ("devices=0 hydra.run.dir=folder", "devices=0:", "write devices=1."),
    ("ckpt_path=file", "file: it is no complete checkpoint", "write ckpt_path=last"),
    ("hydra.run.dir=file", "hydra.run.dir=file:", "File exists"),
    ("--max_epochs 3", "unrecognized arguments: --max_epochs", "then KEY=VALUE without dashes"),
]
"""One error of each kind: from the shell, a schema, a folder and a file."""

VALUES: list[tuple[str, str]] = [
    ("experiment=null", "experiment=null: there is no such option; write one of amp_recipe, "),
    ("devices=${paths.nope}", "devices=${paths.nope}: Interpolation key 'paths.nope' not found"),
    ("strategy=ddp num_nodes=2", "torchrun --nnodes=2"),
    ("batch_size=1e400", "batch_size=inf: it takes a whole number below 2^63; write batch_size=1"),
    ("ckpt_path=größe.ckpt", "ckpt_path=größe.ckpt: this cannot be parsed; write KEY=VALUE, or \"KEY='VALUE'\""),
    ("resume=true", "resume=true: none of the 0 runs of name=train below "),
]
"""Errors raised before any rank starts, from Python; `tests/test_plan.py` has those of the plan alone."""


def is_refused(command: Command, sentence: str, hint: str, *words: str) -> None:
    before = {path: path.is_file() and path.read_bytes() for path in command.folder.rglob("*")}
    ended = command.train(*words)
    assert ended.status == 2, ended.err
    assert ended.out.count("\n") == ("ckpt_path=file" in words), "a checkpoint is read after the title"
    assert ended.err.count("\n") == 1, ended.err
    assert sentence in ended.err
    assert hint in ended.err
    assert {path: path.is_file() and path.read_bytes() for path in command.folder.rglob("*")} == before


@pytest.fixture
def typed(command: Command) -> Command:
    """A command in a folder that holds a file and a folder."""
    (command.folder / "file").write_text("mine")
    (command.folder / "folder").mkdir()
    return command


@pytest.mark.parametrize(("line", "sentence"), VALUES, ids=[case[0] for case in VALUES])
def test_bad_values(line: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as raised:
        lockstep.run(line.split(" "))
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("flag", ["-m", "--multirun"])
def test_a_sweep_that_resumes_names_its_folder(flag: str) -> None:
    """Before any job, and any folder, is made."""
    with pytest.raises(ConfigError, match=r"^resume=true: .* its own folder; write resume=true hydra.sweep.dir=FOLDER"):
        with_earlier_words([flag, "strategy=single,ddp", "resume=true"])
    words = [flag, "seed=1,2", "resume=true", "hydra.sweep.dir=sweep"]
    assert with_earlier_words(words) == words


@pytest.mark.parametrize(("line", "sentence", "hint"), TYPED, ids=[case[0] for case in TYPED])
def test_bad_input(typed: Command, line: str, sentence: str, hint: str) -> None:
    is_refused(typed, sentence, hint, *line.split(" "))


def test_unusual_input_that_is_valid(command: Command) -> None:
    """An integral float, a key twice, a group as a mapping."""
    odd = ("batch_size=1e1", "seed=1", "seed=2", "devices=1.0", "data=points", "model={}", "model.net.hidden=[2]")
    ended = command.train(*odd, "max_epochs=1", "logger=none")
    assert (ended.status, ended.err) == (0, "")
    config = (ended.run_dir / "config.yaml").read_text()
    assert "\nbatch_size: 10.0\n" in config
    assert "seed: 2\n" in config
