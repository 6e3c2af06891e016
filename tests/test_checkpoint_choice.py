"""What `resume` and `ckpt_path` mean: the newest undamaged checkpoint, and the folder of the run."""

import os
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from lockstep.base.config_error import ConfigError
from lockstep.runs.checkpoint import files
from lockstep.runs.checkpoint.files import (
    BEST,
    FOLDER,
    LAST,
    PREVIOUS,
    choose_checkpoint,
    read_checkpoint,
    resume_after_restart,
    typed_words,
)
from lockstep.runs.run_files import CONFIG, METRICS
from tests.conftest import MakePlan


def a_checkpoint(path: Path, age: float, damaged: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({}, path)
    if damaged:
        path.write_bytes(path.read_bytes()[:-5])
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_newest_undamaged_checkpoint_is_chosen(
    make_plan: MakePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = make_plan("name=mine")
    one, two, other = (tmp_path / "logs" / name / FOLDER for name in ("mine/one", "mine/two", "other/run"))
    newest = a_checkpoint(one / PREVIOUS, age=30)
    damaged = [a_checkpoint(two / LAST, age=10, damaged=True), a_checkpoint(one / LAST, age=20, damaged=True)]
    a_checkpoint(two / PREVIOUS, age=40)
    a_checkpoint(other / LAST, age=5)
    read = Mock(side_effect=read_checkpoint)
    monkeypatch.setattr(files, "read_checkpoint", read)
    resumed, torn = choose_checkpoint(replace(plan, resume=True), folder_given=False)
    assert (resumed.ckpt_path, resumed.run_dir, [*torn]) == (str(newest), str(one.parent), damaged)
    assert [call.args[0] for call in read.call_args_list] == [*damaged, newest], "older ones are not read"
    anew, torn = choose_checkpoint(replace(plan, ckpt_path="last"), folder_given=False)
    assert (anew.ckpt_path, anew.run_dir, [*torn]) == (str(newest), plan.run_dir, damaged)
    inside, torn = choose_checkpoint(replace(plan, resume=True, run_dir=str(one.parent)), folder_given=True)
    assert (inside.ckpt_path, inside.run_dir, [*torn]) == (str(newest), str(one.parent), damaged[1:])


def test_a_run_whose_checkpoints_are_all_damaged_is_not_overwritten(
    make_plan: MakePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by `resume=true` nor behind a restart; those of an earlier run in the folder do not count there."""
    run = tmp_path / "run"
    last = a_checkpoint(run / FOLDER / LAST, age=10, damaged=True)
    previous = a_checkpoint(run / FOLDER / PREVIOUS, age=20)
    previous.write_bytes(b"garbage")
    plan = replace(make_plan(), run_dir=str(run))
    with pytest.raises(ConfigError, match=r"^resume=true: no checkpoint there can be read") as refused:
        choose_checkpoint(replace(plan, resume=True), folder_given=True)
    assert all(f"{path} (it is no complete checkpoint" in str(refused.value) for path in (last, previous))
    with pytest.raises(ConfigError, match=r"^resume=true: no checkpoint there can be read"):
        resume_after_restart(plan)
    monkeypatch.setattr(files, "LOGS", tmp_path)
    with pytest.raises(ConfigError, match=r"^ckpt_path=last: no .* read: .*previous.ckpt \(.*last.ckpt \("):
        choose_checkpoint(replace(plan, ckpt_path="last", name="."), folder_given=False)
    for path in (last, previous):
        path.unlink()
    last.mkdir()
    previous.symlink_to(tmp_path / "missing" / PREVIOUS)
    best = a_checkpoint(run / FOLDER / BEST, age=10)
    with pytest.raises(ConfigError, match=r"previous.ckpt \(No such .* \(Is a directory\)"):
        choose_checkpoint(replace(plan, resume=True), folder_given=True)
    last.rmdir()
    previous.unlink()
    resumed, _ = choose_checkpoint(replace(plan, resume=True), folder_given=True)
    assert resumed.ckpt_path == str(best), "a run of which nothing else is left"
    a_checkpoint(previous, age=20, damaged=True)
    (run / CONFIG).touch()
    os.utime(run / CONFIG, (time.time() - 5,) * 2)
    assert resume_after_restart(plan) == plan


def test_a_finished_run_whose_checkpoints_are_gone_is_not_overwritten(make_plan: MakePlan, tmp_path: Path) -> None:
    """Removed, or on a disk that is not there."""
    plan = replace(make_plan(), resume=True, run_dir=str(tmp_path))
    (tmp_path / METRICS).touch()
    with pytest.raises(ConfigError, match=r"is of a finished run, whose checkpoints are gone; write hydra.run.dir="):
        choose_checkpoint(plan, folder_given=True)
    (tmp_path / METRICS).unlink()
    (tmp_path / FOLDER).symlink_to(tmp_path / "missing")
    with pytest.raises(ConfigError, match=r"can be read: .*last.ckpt \(No such file"):
        choose_checkpoint(plan, folder_given=True)


def test_no_checkpoint(make_plan: MakePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = make_plan("name=mine")
    begun = replace(plan, resume=True)
    assert choose_checkpoint(plan, folder_given=False) == (plan, {})
    assert choose_checkpoint(begun, folder_given=True) == (begun, {}), "it starts from scratch"
    nothing = "no run below logs/mine has left an undamaged checkpoint; write"
    cases: list[tuple[dict[str, object], str]] = [
        ({"resume": True}, f"^resume=true: {nothing} resume=false, or"),
        ({"ckpt_path": "last"}, f"^ckpt_path=last: {nothing} ckpt_path=null"),
        ({"ckpt_path": "last", "resume": True}, "^ckpt_path=last: resume=true resumes from the run's own checkpoint"),
        ({"ckpt_path": "~no_such_user/x"}, "^ckpt_path=.*/~no_such_user/x: there is no such file; write the path"),
    ]
    for options, message in cases:
        with pytest.raises(ConfigError, match=message):
            choose_checkpoint(replace(plan, **options), folder_given=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "[", "[1]", "command: null", "# command: 3\nengine: {name: raw}"])
def test_a_damaged_configuration_has_no_words(text: str, tmp_path: Path) -> None:
    """The run can be resumed by its whole command."""
    a_checkpoint(tmp_path / FOLDER / LAST, age=10)
    (tmp_path / CONFIG).write_text(text)
    assert typed_words(tmp_path, "train") == []


def test_a_run_without_a_checkpoint_begins_with_what_was_typed_for_it(tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text('# command: [["engine=raw", "seed=3"], []]\nengine: {name: raw}')
    assert typed_words(tmp_path, "train") == ["engine=raw", "seed=3"]


def test_a_folder_of_runs_is_not_resumed(make_plan: MakePlan, tmp_path: Path) -> None:
    """That of a sweep, say: another run would begin there, and write over its files."""
    last = a_checkpoint(tmp_path / "sweep" / "1" / FOLDER / LAST, age=10)
    plan = replace(make_plan(), resume=True, run_dir=str(tmp_path / "sweep"))
    reason = rf"^resume=true: {plan.run_dir} is no run, but holds runs \(1\); write hydra.run.dir={last.parents[1]}\.$"
    with pytest.raises(ConfigError, match=reason):
        choose_checkpoint(plan, folder_given=True)
