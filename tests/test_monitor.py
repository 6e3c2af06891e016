"""What people watch of a run: labels, hyper-parameters, curves and pictures, by TensorBoard's readers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

import lockstep.engine
from lockstep.command.compose import swept_keys
from lockstep.launch.start import start_ranks
from lockstep.plan import schemas
from lockstep.plan.plan import Plan
from lockstep.plan.run_label import folder_of, run_label
from lockstep.plan.schemas.run import ENGINES
from lockstep.runs.loggers import hparams_of
from lockstep.runs.run_files import PHASES
from tests.conftest import MakePlan, events_of
from tests.rank_helpers import ALONE
from tests.test_user_module import MODULES, SINGLE

SMALL = ("model.net.hidden=[8]", "batch_size=200", "max_epochs=2", "threads=1", "log_every_n_steps=3")


def labelled(plan: Plan, *words: str, swept: tuple[str, ...] = ()) -> str:
    """Without its time."""
    return run_label(replace(plan, command=schemas.Command(words, swept))).rpartition(" · ")[0]


def test_label_begins_with_what_varies_or_was_typed(make_plan: MakePlan) -> None:
    plan, two = make_plan(), make_plan("strategy=ddp", "devices=2", "engine=raw")
    assert labelled(plan) == "single MLP"
    assert labelled(plan, "engine=lightning", "logger=csv", "seed=3") == "seed=3 single MLP"
    assert labelled(two, "optimizer.lr=0.003", "model.net.hidden=[8]", "+data.x='a/b c'") == (
        "lr=0.003 hidden=[8] x=b c raw ddp×2 MLP"
    )
    job = ("engine=raw", "strategy=ddp", "optimizer.lr=1", "max_epochs=2", "threads=2")
    assert labelled(two, *job, swept=("threads",)) == "threads=2 raw ddp×2 MLP"
    assert labelled(two, *job, swept=("optimizer.lr", "strategy")) == "lr=1 raw ddp×2 MLP"
    assert labelled(plan, "data.size=1", "model.size=2") == "data.size=1 model.size=2 single MLP"
    long = labelled(plan, *(f"model.key{number}=value" for number in range(30)))
    assert (len(long), "…" in long) == (69, True)


def test_label_has_the_time_of_the_folder(make_plan: MakePlan, tmp_path: Path) -> None:
    dated = replace(make_plan(), run_dir=str(tmp_path / "logs" / "2026-11-22_14-03-12-798684" / "3"))
    assert run_label(dated) == "single MLP · 11-22_14-03-12"
    first = folder_of(dated)
    first.mkdir(parents=True)
    (first / "events.out.tfevents.1").touch()
    changed = schemas.Command(("max_epochs=9",))
    assert folder_of(replace(dated, command=changed, resume=True)) == first
    assert folder_of(replace(dated, command=changed)) != first


def test_swept_keys_have_several_values_or_were_not_typed() -> None:
    typed = ["-m", "--config-dir", "x", "optimizer.lr=1,2", "model.net.hidden=[8, 16]", "seed=range(3)", "max_epochs=1"]
    job = ["optimizer.lr=1", "model.net.hidden=[8,16]", "seed=0", "max_epochs=1", "+data.size=7"]
    assert swept_keys(typed, job) == ("optimizer.lr", "seed", "data.size")
    assert swept_keys(["seed=1", "seed=1,2"], ["seed=1", "seed=2"]) == ("seed",), "the last counts"


def test_options_are_hyper_parameters(make_plan: MakePlan) -> None:
    hparams = hparams_of(make_plan("gradient_clip_val=1.0", "tags=[mnist]"))
    assert hparams["tags"] == '["mnist"]'
    assert hparams["model.net.hidden"] == "[256, 128]"
    assert {"optimizer.lr", "max_epochs", "gradient_clip_val", "scheduler", "optimizer.weight_decay"} <= hparams.keys()
    assert not {"world_size", "run_dir", "name", "ckpt_path", "logger", "data.root"} & hparams.keys()
    assert hparams_of(make_plan())["gradient_clip_val"] == "null", "told apart from a number, and not left out"


@pytest.mark.slow
def test_run_in_tensorboard(make_plan: MakePlan) -> None:
    """Groups by meaning, hyper-parameters beside them, no blank card; and pictures."""
    plan = make_plan(*SMALL, "strategy=ddp", "devices=2")
    plan = replace(plan, command=schemas.Command(("strategy=ddp", "optimizer.lr=0.01")))
    metrics = start_ranks(plan, ENGINES["lightning"])
    events = events_of(Path(plan.run_dir), images=0, tensors=0, scalars=0)
    curves = {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    steps = {f"work/step_seconds/{phase}" for phase in PHASES}
    assert {name for name in curves if name.startswith("work/")} == {
        *steps,
        *("work/samples_per_second", "work/memory_GiB"),
    }
    groups = sorted({name.partition("/")[0] for name in curves})
    assert groups == ["monitored", "test", "train", "val", "work"], "TensorBoard opens the first two"
    assert min(map(len, curves.values())) == 2, "a card of one point is blank"
    monitored = [name for name in curves if name.startswith("monitored/")]
    assert sorted(monitored) == ["monitored/train/acc", "monitored/val/acc", "monitored/val/acc_best"]
    assert curves["monitored/train/acc"] == curves["train/acc"]
    assert curves["monitored/val/acc_best"][-1] == (14, pytest.approx(metrics["best"]))
    assert curves["test/acc"] == [(step, pytest.approx(metrics["test/acc"])) for step in (0, 14)]
    assert [step for step, _ in curves["train/acc"]] == [step for step, _ in curves["val/acc"]] == [7, 14]
    assert curves["train/acc"][-1][1] == pytest.approx(metrics["train/acc"])
    spent = sum(value for name in steps for _, value in curves[name]) * metrics["steps"] / 2
    assert 0.3 < spent / metrics["train_seconds"] < 1.5
    begun = parsed(events, metadata.SESSION_START_INFO_TAG)
    assert metadata.parse_session_start_info_plugin_data(begun).hparams["optimizer.lr"].number_value == 0.001
    assert parsed(events, metadata.SESSION_END_INFO_TAG)
    assert metadata.EXPERIMENT_TAG not in events.summary_metadata, "the list of one run would stand for all"
    pictures = {tag: [one.step for one in events.Images(tag)] for tag in events.Tags()["images"]}
    assert pictures == {"val/confusion": [7, 14], "val/worst": [7, 14]}


def parsed(events: EventAccumulator, tag: str) -> bytes:
    content: bytes = events.summary_metadata[tag].plugin_data.content
    return content


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no `validation_step`")
def test_curves_of_manual_optimization(make_user_plan: MakePlan) -> None:
    plan = make_user_plan(*MODULES["gan"], *SINGLE, "logger=tensorboard", "test=false", "max_epochs=2")
    metrics: dict[str, Any] = lockstep.engine.run(plan, ALONE)
    events = events_of(Path(plan.run_dir))
    phases = [name for name in events.Tags()["scalars"] if "/step_seconds/" in name]
    assert {name.rpartition("/")[2] for name in phases} == {*PHASES} - {"communication"}
    spent = sum(point.value for name in phases for point in events.Scalars(name)) * metrics["steps"] / 2
    assert 0 < spent < 1.2 * metrics["train_seconds"]
