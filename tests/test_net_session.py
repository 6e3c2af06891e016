"""A Classifier beside callbacks, or with the loaders of a LightningDataModule: the results are the same."""

from pathlib import Path

import pytest
import torch

from tests.comparing import metrics_in, require_close, require_identical
from tests.conftest import MakeUserPlan, require_refused
from tests.resuming import record, same_after_kill, start, untimed
from tests.test_user_module import DDP, SINGLE, VIRTUAL, trained

DIGITS = ("model=mlp", "data=digits", "batch_size=250", "max_epochs=1")
JOBS = {
    "ranks": (*DIGITS, "accumulate_grad_batches=3", "scheduler=onecycle", "gradient_clip_val=0.5", *DDP),
    "virtual": ("model=noise", "data=noisy", "batch_size=8", *VIRTUAL),
    "plateau": (
        *("model=residual", "data=blobs", "batch_size=8", "precision=64-true", "drop_last=true", *DDP),
        *(
            "+scheduler._target_=torch.optim.lr_scheduler.ReduceLROnPlateau",
            "+scheduler._partial_=true",
            "+scheduler.patience=0",
        ),
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_callbacks_change_nothing(name: str, make_user_plan: MakeUserPlan) -> None:
    options = (*JOBS[name], "logger=csv", "log_every_n_steps=2")
    plans = [make_user_plan(*options, f"callbacks={callbacks}", folder=callbacks) for callbacks in ("none", "timer")]
    alone, beside = map(trained, plans)
    assert untimed(metrics_in(alone)) == untimed(metrics_in(beside))
    assert record(plans[0]) == record(plans[1])
    curves = [next(Path(plan.run_dir).glob("csv/**/metrics.csv")).read_text().splitlines() for plan in plans]
    assert len(curves[0]) == len(curves[1]) > 2
    states = [torch.load(run / "checkpoints" / "last.ckpt", weights_only=True) for run in (alone, beside)]
    assert states[0]["state_dict"].keys() == states[1]["state_dict"].keys()
    differ = {key for key, value in states[0]["lockstep"].items() if repr(value) != repr(states[1]["lockstep"][key])}
    assert differ <= {"identity", "plan", "ranks"}


STOPPING = (
    *("callbacks=early_stopping", "callbacks.early_stopping.monitor=val/acc", "callbacks.early_stopping.mode=max"),
    *("callbacks.early_stopping.patience=1", "+callbacks.early_stopping.min_delta=0.9", "max_epochs=5"),
)
"""A value that never improves much."""


def test_early_stopping_is_resumed(make_user_plan: MakeUserPlan) -> None:
    """A checkpoint within an epoch has the sums of metrics; a run without callbacks can test it."""
    job = ("model=mlp", "data=blobs", "model.net.hidden=[6]")
    plan = make_user_plan(*job, *DDP, "batch_size=16", *STOPPING, "checkpoint.every_n_steps=2")
    expected = start(plan)
    assert expected["epochs"] == 2
    same_after_kill(plan, 9, expected=expected)
    last = f"ckpt_path={Path(plan.run_dir) / 'checkpoints' / 'last.ckpt'}"
    tested = metrics_in(trained(make_user_plan(*job, *SINGLE, "train=false", last, folder="tested")))
    assert tested["test/loss"] == pytest.approx(expected["test/loss"], rel=1e-6)


SHAPE = ("+model.net.sample_shape=[4]", "+model.net.num_outputs=3", "+model.num_classes=3")
NET = ("model=mlp", "model.net.hidden=[6]", *SHAPE)
LOADERS = {
    "pairs_data": ("data=pairs_data", "scheduler=onecycle", "accumulate_grad_batches=3"),
    "endless": ("data=endless", "batch_size=9"),
}
"""61 pairs in batches of 8; an iterable without a length."""


@pytest.mark.parametrize("name", [pytest.param("pairs_data", marks=pytest.mark.slow), "endless"])
def test_loaders_in_every_world(name: str, make_user_plan: MakeUserPlan) -> None:
    job = (*NET, *LOADERS[name], "precision=64-true", "optimizer=sgd")
    worlds = {"single": SINGLE, "ddp": DDP, "virtual": VIRTUAL}
    runs = {world: trained(make_user_plan(*job, *options, folder=world)) for world, options in worlds.items()}
    by_lightning = trained(make_user_plan(*job, "engine=lightning", *DDP, folder="lightning"))
    require_identical(by_lightning, runs["ddp"])
    for world in ("ddp", "virtual"):
        require_close(runs["single"], runs[world])
    assert {"train/loss", "train/acc", "val/f1", "test/acc"} <= metrics_in(runs["ddp"]).keys()


def test_the_same_data_with_and_without_loaders(make_user_plan: MakeUserPlan) -> None:
    """Weights are bit-equal: order and weights of ragged batches are the same."""
    job = (*NET, *DDP)
    first = metrics_in(trained(make_user_plan(*job, "data=pairs_data", folder="loaders")))
    second = metrics_in(trained(make_user_plan(*job, "data=pairs", "batch_size=8", folder="alone")))
    assert first["digest"] == second["digest"]
    assert first["val/acc"] == second["val/acc"]


@pytest.mark.parametrize(("name", "world"), [("endless", DDP), ("pairs_data", SINGLE)])
def test_loaders_are_resumed(name: str, world: tuple[str, ...], make_user_plan: MakeUserPlan) -> None:
    job = (*NET, *LOADERS[name], *world, "checkpoint.every_n_steps=1")
    plan = make_user_plan(*job)
    same_after_kill(plan, 5)


def test_a_schedule_of_an_unknown_length_is_rejected(make_user_plan: MakeUserPlan) -> None:
    require_refused("the length of an epoch", make_user_plan, *NET, "data=endless", "scheduler=onecycle")


@pytest.mark.parametrize("word", SHAPE[:2])
def test_what_the_data_does_not_tell_is_asked_for(word: str, make_user_plan: MakeUserPlan) -> None:
    key = word.partition("=")[0]
    sentence = f"{key[1:]} is missing, and the data does not tell it; write {key}=VALUE, or self."
    others = (each for each in NET if each != word)
    require_refused(sentence, make_user_plan, *others, "data=pairs_data")
