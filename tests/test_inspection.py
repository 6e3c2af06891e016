"""Wrong values of targets are refused in one sentence, and nothing is printed; the title comes after the checks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from lockstep.base.config_error import ConfigError
from lockstep.command.compose import compose_job
from lockstep.command.hydra_errors import planning
from lockstep.command.job import prepare
from lockstep.launch import forkserver
from tests.conftest import require_refused
from tests.inspections import asked_here

WRONG = {
    "model=example model._target_=nope.Net": "model._target_=nope.Net: there is no module nope; write",
    "optimizer.lr=-1": "optimizer._target_=torch.optim.Adam: it raises ValueError: Invalid learning rate: -1",
    "scheduler=onecycle scheduler.warmup_fraction=a": "scheduler.warmup_fraction=a: one_cycle takes a number",
    "+model.net.width=1": "model.net.width=1: MLP takes no such argument",
}


class Imported(Exception):
    """The fork server, or this process, is about to import user code."""


def make(*words: str) -> Any:
    with planning(words):
        return prepare(compose_job([*words])[0], Path("logs/train/here").absolute(), has_folder=False)


@pytest.fixture(autouse=True)
def import_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: Sequence[str]) -> NoReturn:
        raise Imported

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(forkserver, "start_forkserver", fail)


@pytest.mark.parametrize("words", WRONG)
def test_wrong_values_of_targets(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(forkserver, "start_forkserver", lambda *_: None)
    monkeypatch.setattr("lockstep.launch.start.in_child", asked_here)
    require_refused(WRONG[words], make, *words.split(), "data=digits")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("resumes", "folder"), [("false", ": logs/train/here"), ("true", "")])
def test_the_title_comes_after_the_checks(
    resumes: str, folder: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused run has none."""
    (tmp_path / "logs" / "train" / "before" / "checkpoints").mkdir(parents=True)
    (tmp_path / "logs" / "train" / "before" / "checkpoints" / "last.ckpt").touch()
    words = ("data=points", "strategy=ddp", "devices=2", "accelerator=cpu", "logger=none", f"resume={resumes}")
    with pytest.raises(ConfigError, match="Imported"):
        make(*words)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(forkserver, "start_forkserver", lambda *_: None)
    monkeypatch.setattr("lockstep.launch.start.in_child", asked_here)
    monkeypatch.setattr("lockstep.command.job.choose_checkpoint", lambda plan, _: (plan, []))
    make(*words)
    assert capsys.readouterr().out == f"MLP on Points, ddp × 2, lightning, cpu{folder}\n"
