"""A Classifier with the loaders of a LightningDataModule: the same results in all worlds, and after a kill."""

from pathlib import Path

import pytest

from tests.comparing import metrics_in, require_close
from tests.conftest import MakeUserPlan, require_refused
from tests.resuming import same_after_kill, start
from tests.test_user_module import DDP, SINGLE, VIRTUAL, trained

STOPPING = (
    *("callbacks=early_stopping", "callbacks.early_stopping.monitor=val/acc", "callbacks.early_stopping.mode=max"),
    *("callbacks.early_stopping.patience=1", "+callbacks.early_stopping.min_delta=0.9", "max_epochs=5"),
)
"""A value that never improves much."""


@pytest.mark.slow
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
ENDLESS = ("data=endless", "batch_size=9")
"""An iterable without a length."""


@pytest.mark.slow
def test_loaders_in_every_world(make_user_plan: MakeUserPlan) -> None:
    job = (*NET, *ENDLESS, "precision=64-true", "optimizer=sgd")
    worlds = {"single": SINGLE, "ddp": DDP, "virtual": VIRTUAL}
    runs = {world: trained(make_user_plan(*job, *options, folder=world)) for world, options in worlds.items()}
    for world in ("ddp", "virtual"):
        require_close(runs["single"], runs[world])
    assert {"train/loss", "train/acc", "val/f1", "test/acc"} <= metrics_in(runs["ddp"]).keys()


def test_a_schedule_of_an_unknown_length_is_rejected(make_user_plan: MakeUserPlan) -> None:
    require_refused("the length of an epoch", make_user_plan, *NET, "data=endless", "scheduler=onecycle")


@pytest.mark.parametrize("word", SHAPE[:2])
def test_what_the_data_does_not_tell_is_asked_for(word: str, make_user_plan: MakeUserPlan) -> None:
    key = word.partition("=")[0]
    sentence = f"{key[1:]} is missing, and the data does not tell it; write {key}=VALUE, or self."
    others = (each for each in NET if each != word)
    require_refused(sentence, make_user_plan, *others, "data=pairs_data")
