"""Lockstep from Python: what an IDE completes, and what keyword arguments stand for. mypy checks this file, too."""

import json
import shutil
import typing
from collections.abc import Callable
from inspect import signature
from pathlib import Path

import pytest
import yaml
from torch import nn

import lockstep
from lockstep import RunResult, run
from lockstep.base.config_error import ConfigError
from lockstep.base.files import CONF
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.groups import GROUPS
from lockstep.plan.targets.from_python import EngineName, Precision, words_of
from lockstep.runs.run_files import METRICS
from lockstep.strategies import StrategyName
from tests.conftest import require_refused

NAMES = {"ConfigError", "RankFailed", "Recorder", "RunResult", "check", "compare", "load", "run"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("lockstep.run(", {"model=", "data=", "strategy=", "engine=", "devices=", "max_epochs=", "precision="}),
        ("result.compare(result).", {"verdict", "within_tolerance", "first_divergence"}),
    ],
)
def test_an_ide_completes(line: str, names: set[str]) -> None:
    jedi = pytest.importorskip("jedi", reason="needs jedi, of the extra dev")
    code = f"import lockstep\nresult = lockstep.run()\n{line}"
    assert names <= {each.name for each in jedi.Script(code).complete()}


def test_dir_shows_what_there_is() -> None:
    assert {*dir(lockstep)} == {*lockstep.__all__} == NAMES
    assert all(hasattr(lockstep, name) for name in NAMES)
    assert (Path(lockstep.__file__).parent / "py.typed").is_file()


def test_keywords_are_keys_and_their_types_the_options() -> None:
    train = yaml.safe_load((CONF / "train.yaml").read_text())
    keys = {*train, *(group for choice in train["defaults"] if isinstance(choice, dict) for group in choice)}
    assert signature(run).parameters.keys() - keys == {"overrides"}
    names = {"strategy": StrategyName, "engine": EngineName}
    assert {key: {*typing.get_args(each)} for key, each in names.items()} == {key: {*GROUPS[key]} for key in names}
    assert Precision == typing.get_type_hints(Plan)["precision"]


def test_keywords_are_overrides_with_the_quotes_that_hydra_needs() -> None:
    passed = {"name": "1e3", "ckpt_path": Path("it's"), "test": True, "logger": ["csv"], "model": "mlp"}
    words = ["name='1e3'", r"ckpt_path='it\'s'", "test=true", "logger=[csv]", "model=mlp"]
    assert words_of(passed) == (words, {})
    linear = {"_target_": "torch.nn.modules.linear.Linear"}
    assert words_of({"model": nn.Linear, "seed": 1}) == (["seed=1"], {"model": linear})


WRONG: dict[str, Callable[[], RunResult]] = {  # with an error of mypy each, but those of overrides
    "devices=0: it must be": lambda: run(["devices=1"], devices=0),
    "strategy=dpd: there is no such option (did you mean dp?)": lambda: run(strategy="dpd"),  # type: ignore[arg-type]
    "max_epochs=many: it takes a whole number": lambda: run(max_epochs="many"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("sentence", WRONG)
def test_a_wrong_argument_is_one_sentence(sentence: str) -> None:
    require_refused(sentence, WRONG[sentence])


def test_a_module_that_starts_a_run_as_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "endless.py").write_text("import lockstep\n\nclass Net: ...\n\nlockstep.run(logger='none')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"endless calls lockstep\.run as it is imported"):
        run(["model.net._target_=endless.Net"], logger="none")


def test_a_run_by_keywords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its result is all that one asks of a run, by typed names."""
    # the module that one starts, which hides the function once another test has imported it
    monkeypatch.delitem(vars(lockstep), "compare", raising=False)
    monkeypatch.setattr("lockstep.command.job.git_commit", lambda: "cafe")
    words = ["data.val_size=20", "data.test_size=1740", "model.net.hidden=[5]", "strategy.in_process=true"]
    one, other = (
        run([*words, f"hydra.run.dir={tmp_path / name}"], engine="raw", max_epochs=epochs, batch_size=8, logger="none")
        for name, epochs in (("one", 2), ("other", 1))
    )
    assert capsys.readouterr().out.count("engine=raw keeps the record, the results and last.ckpt: no curves") == 2
    assert {"train/loss", "val/acc", "test/acc"} <= one.metrics.keys() < one.keys()
    values = {"train/loss", "train/acc", "val/loss", "val/acc"}
    assert [row.keys() >= values for row in one.history] == [True, True]
    assert one.module().training is False
    assert not one.compare(other).within_tolerance
    assert lockstep.compare(one, tmp_path / "one").verdict == "identical"
    later = shutil.copytree(one, tmp_path / "later")
    (later / METRICS).write_text(json.dumps(one | {"commit": "c0ffee", "test/acc": 2.0}))
    assert one.compare(later).text().endswith("They ran the code of commits cafe and c0ffee.")
