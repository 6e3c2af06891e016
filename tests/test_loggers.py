"""Loggers: the same points, of all ranks' samples, to one or several of them."""

import csv
import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only
from tensorboard.plugins.hparams import metadata

from lockstep.command.build import plan_from
from lockstep.command.compose import compose_job
from lockstep.command.hydra_errors import planning
from lockstep.launch.failure import RankFailed
from lockstep.launch.start import start_ranks
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.run import ENGINES
from lockstep.runs import loggers
from tests.comparing import lines
from tests.conftest import USER_CODE, Command, MakePlan, events_of, require_refused
from tests.resuming import start

SMALL = ("data=digits", "model=mlp", "model.net.hidden=[8]", "batch_size=200", "max_epochs=2", "threads=1")
WORLD = ("strategy=ddp", "devices=2", "accelerator=cpu", "log_every_n_steps=7")


@pytest.fixture
def make_user_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakePlan:
    """Plans with the loggers of a folder outside."""
    monkeypatch.syspath_prepend(str(USER_CODE))

    def make(*overrides: str) -> Plan:
        words = [f"hydra.searchpath=[file://{USER_CODE / 'conf'}]", *SMALL, *overrides]
        with planning(words):
            return plan_from(compose_job(words)[0], tmp_path)

    return make


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("logger=none",), []),
        (("logger=[csv,recording]", "+logger.file=a"), ["Recording", "CSVLogger"]),
    ],
)
def test_loggers_of_a_plan(words: tuple[str, ...], names: list[str], make_user_plan: MakePlan) -> None:
    plan = make_user_plan(*words)
    assert [logger.name for logger in plan.logger] == names
    assert [logger.call["file"] for logger in plan.logger if logger.name == "Recording"] in ([], ["a"])


INVALID = {
    "logger=csv +logger.csv.folder=a": "logger.csv.folder=a: CSVLogger takes no such argument; write one of",
    "logger=notebook": "logger._target_=strange_loggers.Notebook: Notebook is not a Logger of Lightning; write",
    "logger=[recording,notebook]": "logger=[recording,notebook]: two of these files have a _target_, and",
}


@pytest.mark.parametrize("words", INVALID)
def test_invalid_logger_is_refused(words: str, make_user_plan: MakePlan) -> None:
    require_refused(INVALID[words], make_user_plan, *words.split())


def test_missing_package_is_named(make_user_plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(loggers, "find_spec", lambda name: None if name == "wandb" else find(name))
    sentence = "logger=wandb: it needs the package wandb; write pip install wandb, or logger=tensorboard."
    require_refused(sentence, make_user_plan, "logger=[csv,wandb]")


def recorded_calls(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "told.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_several_loggers_get_the_same_points(make_user_plan: MakePlan, tmp_path: Path) -> None:
    """A user's, a table and TensorBoard; two ranks, one of which writes the points of both.

    Seven steps an epoch, the last ragged.
    """
    plan = make_user_plan(*WORLD, "logger=[csv,tensorboard,recording]", "checkpoint.every_n_steps=3")
    metrics = start_ranks(plan, ENGINES["lightning"])
    calls = recorded_calls(tmp_path)
    assert len({pid for _, pid, *_ in calls}) == 1
    assert calls[-1][0] == "success"
    events = events_of(tmp_path)
    curves = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    assert curves["test/acc"][0].value == pytest.approx(metrics["test/acc"])
    steps = lines(tmp_path, "step")
    halves = [steps[:7], steps[7:]]
    losses = [sum(step["loss_sum"] for step in half) / sum(step["samples"] for step in half) for half in halves]
    assert [point.value for point in curves["train/loss"]] == pytest.approx(losses, abs=1e-5)
    seconds = sum(1257 / point.value for point in curves["work/samples_per_second"])
    assert 0.6 < seconds / metrics["train_seconds"] < 1.4, "half the samples would have taken twice as long"
    points = [call[2:] for call in calls if call[0] == "metrics"]
    assert [step for values, step in points if "lr" in values] == [7, 14]
    epochs = [(values["epoch"], step) for values, step in points if "epoch" in values]
    assert epochs == [(0, 7), (0, 7), (1, 14), (1, 14), (2, 14)], "of a step, and of an epoch; then the test"
    assert [call[2]["optimizer.lr"] for call in calls if call[0] == "hparams"]
    with (tmp_path / "csv" / "version_0" / "metrics.csv").open() as file:
        table = [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
    assert table == [{**values, "step": step} for values, step in points], "all get the same values"
    for tag in ("train/loss", "val/loss"):
        assert [point.step for point in curves[tag]] == [7, 14]


def test_loggers_save_before_a_checkpoint_and_end_a_failed_run(make_user_plan: MakePlan, tmp_path: Path) -> None:
    plan = make_user_plan(
        *("logger=recording", "max_epochs=1", "log_every_n_steps=1", "checkpoint.every_n_steps=3", "test=false")
    )
    with pytest.raises(RankFailed):
        start(plan, "raise@0:step:5")
    calls = [call[0] if call[0] != "metrics" else call[3] for call in recorded_calls(tmp_path)]
    assert calls[calls.index(3) + 1] == "save"
    assert calls[-1] == "failed"


def test_each_resume_has_a_table(make_user_plan: MakePlan, tmp_path: Path) -> None:
    plan = make_user_plan("logger=csv")
    for resume, step in ((False, 1), (True, 5)):
        opened = loggers.create_loggers(replace(plan, resume=resume), 0, step - 1)
        opened.log_metrics({"lr": 0.1}, step)
        opened.close()
    for version, step in ((0, 1), (1, 5)):
        with (tmp_path / "csv" / f"version_{version}" / "metrics.csv").open(newline="") as file:
            assert [*csv.DictReader(file)] == [{"lr": "0.1", "step": f"{step}"}]


def test_loggers_of_a_trainer(make_user_plan: MakePlan, tmp_path: Path) -> None:
    """`self.logger.experiment` of a module, its points and hyper-parameters; above rank 0 nothing is written."""
    plan = make_user_plan("logger=[tensorboard,csv]")
    try:
        for rank in (1, 0):
            opened = loggers.create_loggers(plan, rank, 0)
            board, _ = opened
            assert isinstance(board, TensorBoardLogger)
            board.experiment.add_image("picture", torch.zeros(1, 2, 2), 1)
            for logger in opened:
                logger.log_metrics({"mine": 0.5}, step=3)
                logger.log_hyperparams({"net": {"width": 9, "hidden": [8]}, "loss": torch.nn.MSELoss, "num_classes": 3})
                logger.finalize("success")
            opened.close()
            assert any(tmp_path.iterdir()) == (rank == 0)
    finally:
        rank_zero_only.rank = 0  # type: ignore[attr-defined]
    events = events_of(tmp_path, images=0)
    assert (events.Tags()["images"], [point.step for point in events.Scalars("mine")]) == (["picture"], [3])
    begun = events.summary_metadata[metadata.SESSION_START_INFO_TAG].plugin_data.content
    hparams = metadata.parse_session_start_info_plugin_data(begun).hparams
    assert hparams["net.width"].number_value == 9
    assert "MSELoss" in hparams["loss"].string_value
    assert {"seed", "model.net.hidden"} <= hparams.keys(), "which the plan has"
    assert not {"net.hidden", "num_classes", "optimizer._partial_"} & hparams.keys(), "they follow from it"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tracker", "left"), [("wandb", "logs/**/wandb/offline-run-*/run-*.wandb"), ("mlflow", "mlflow.db")]
)
def test_a_tracker_writes_offline(tracker: str, left: str, command: Command) -> None:
    pytest.importorskip(tracker, reason=f"needs pip install {tracker}")
    ended = command.train(*SMALL, f"logger={tracker}", "tags=[mnist,lenet]")
    assert ended.status == 0, ended.err
    [written] = command.folder.glob(left)
    assert all(name in written.read_bytes() for name in (b"val/acc", b"train/loss", b"optimizer.lr"))
