"""What `resume` and `ckpt_path` mean: the newest undamaged checkpoint, and the folder of the run."""

import os
import re
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import yaml

from lockstep.base.config_error import ConfigError
from lockstep.command.job import with_earlier_words
from lockstep.runs.checkpoint import files
from lockstep.runs.checkpoint.files import (
    BEST,
    FOLDER,
    LAST,
    PREVIOUS,
    choose_checkpoint,
    read_checkpoint,
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


def a_run(folder: Path, age: float, **config: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = f'# command: [["model=mine", "strategy=ddp", "devices=2", "hydra.run.dir={folder}"], []]\n'
    (folder / CONFIG).write_text(text + yaml.safe_dump({"engine": {"name": "raw"}, **config}))
    os.utime(folder / CONFIG, (time.time() - age,) * 2)
    return folder


def test_the_newest_run_without_a_checkpoint_is_named(
    make_plan: MakePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older one is resumed in its place if both have the same options; otherwise the user chooses."""
    monkeypatch.chdir(tmp_path)
    plan = replace(make_plan("name=mine"), resume=True)
    first, second = a_run(tmp_path / "logs/mine/first", 30, seed=1), a_run(tmp_path / "logs/mine/second", 10, seed=1)
    last = a_checkpoint(first / FOLDER / LAST, age=20)
    resumed, skipped = choose_checkpoint(plan, folder_given=False)
    assert (resumed.ckpt_path, skipped) == (str(last), {second: "it has no checkpoint"})
    a_run(second, 10, seed=2)
    reason = f"resume=true: the newest run, {second}, has no checkpoint, and the one before it differs in seed; write "
    with pytest.raises(ConfigError, match=re.escape(f"{reason}resume=true hydra.run.dir={first}, the one before.")):
        choose_checkpoint(plan, folder_given=False)
    (second / METRICS).touch()
    assert choose_checkpoint(plan, folder_given=False)[1] == {}, "a test of a checkpoint, say"


def test_a_test_takes_the_words_of_the_run_about_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its path, or as the last or the best checkpoint; where it runs is typed anew."""
    monkeypatch.chdir(tmp_path)
    last = a_checkpoint(a_run(tmp_path / "logs/train/run", 30) / FOLDER / LAST, age=20)
    for path in ("last", "best", str(last)):
        typed = ["train=false", f"ckpt_path={path}"]
        assert with_earlier_words(typed) == ["model=mine", *typed]
        assert with_earlier_words([*typed, "model=other"]) == [*typed, "model=other"]
    assert with_earlier_words(["ckpt_path=last"]) == ["ckpt_path=last"], "which trains on"


def test_the_best_checkpoint_of_the_newest_run(
    make_plan: MakePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = replace(make_plan("name=mine"), ckpt_path="best")
    a_checkpoint(tmp_path / "logs/mine/run" / FOLDER / LAST, age=20)
    with pytest.raises(ConfigError, match=r"^ckpt_path=best: .*/logs/mine/run has none; write ckpt_path=last\.$"):
        choose_checkpoint(plan, folder_given=False)
    best = a_checkpoint(tmp_path / "logs/mine/run" / FOLDER / BEST, age=30)
    assert choose_checkpoint(plan, folder_given=False)[0].ckpt_path == str(best)


def test_a_run_whose_checkpoints_are_all_damaged_is_not_overwritten(make_plan: MakePlan, tmp_path: Path) -> None:
    """A link may lead to a disk that is gone. best.ckpt counts if it is alone."""
    folder = tmp_path / FOLDER
    torn, last, previous = a_checkpoint(folder / "torn", age=1, damaged=True), folder / LAST, folder / PREVIOUS
    plan = replace(make_plan(), resume=True, run_dir=str(tmp_path))
    torn.rename(last)
    previous.symlink_to(tmp_path / "missing")
    with pytest.raises(ConfigError, match=r"^resume=true: no .* read: .*No such file or.*it is no complete ch"):
        choose_checkpoint(plan, folder_given=True)
    last.unlink()
    previous.unlink()
    best = a_checkpoint(folder / BEST, age=10)
    assert choose_checkpoint(plan, folder_given=True)[0].ckpt_path == str(best)


@pytest.mark.parametrize("left", [METRICS, f"1/{FOLDER}/{LAST}"])
def test_results_and_runs_are_not_overwritten(left: str, make_plan: MakePlan, tmp_path: Path) -> None:
    """Of a run whose checkpoints are gone, and of a sweep."""
    a_checkpoint(tmp_path / left, age=1)
    with pytest.raises(ConfigError, match=r"holds results or runs, but no checkpoint of its own; write resume=false"):
        choose_checkpoint(replace(make_plan(), resume=True, run_dir=str(tmp_path)), folder_given=True)


def test_no_checkpoint(make_plan: MakePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = make_plan("name=mine")
    begun = replace(plan, resume=True)
    assert choose_checkpoint(plan, folder_given=False) == (plan, {})
    assert choose_checkpoint(begun, folder_given=True) == (begun, {}), "it starts from scratch"
    nothing = f"none of the 0 runs of name=mine below {tmp_path}/logs/mine has left an undamaged checkpoint; write"
    cases: list[tuple[dict[str, object], str]] = [
        ({"resume": True}, f"^resume=true: {nothing} resume=false, or"),
        ({"ckpt_path": "last"}, f"^ckpt_path=last: {nothing} ckpt_path=null"),
        ({"ckpt_path": "last", "resume": True}, "^ckpt_path=last: resume=true resumes from the run's own checkpoint"),
        ({"ckpt_path": "~no_such_user/x"}, "^ckpt_path=~no_such_user/x: there is no such file; write the path"),
    ]
    for options, message in cases:
        with pytest.raises(ConfigError, match=message):
            choose_checkpoint(replace(plan, **options), folder_given=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["[", "[1]", "# command: 3\nengine: {name: raw}"])
def test_a_damaged_configuration_has_no_words(text: str, tmp_path: Path) -> None:
    """The run can be resumed by its whole command."""
    (tmp_path / CONFIG).write_text(text)
    assert typed_words(tmp_path, "train") == []
    (tmp_path / CONFIG).write_text('# command: [["engine=raw", "seed=3"], []]\nengine: {name: raw}')
    assert typed_words(tmp_path, "train") == ["engine=raw", "seed=3"]
