"""A LightningModule after a kill: the resumed run ends as an unbroken one, to the byte of its record."""

import pytest

from tests.conftest import MakeUserPlan
from tests.resuming import same_after_kill, start
from tests.test_user_module import DDP, MODULES, SINGLE, TUNED, VIRTUAL, trained


@pytest.mark.slow
def test_a_metric_of_all_epochs_is_resumed(make_user_plan: MakeUserPlan) -> None:
    """Also one that on_train_start resets, as in lightning-hydra-template."""
    plan = make_user_plan("model=uneven", "data=uneven_data", *SINGLE, "max_epochs=3")
    expected = start(plan)
    assert "worst" in expected
    same_after_kill(plan, 11, expected=expected)


@pytest.mark.slow
def test_metrics_of_all_epochs_are_counted_once(make_user_plan: MakeUserPlan) -> None:
    """Two of them have a value before training; in another world rank 0 restores the states of both ranks."""
    job = ("model=tracing", "+model.norm=false", "data=blobs_data")
    plan = make_user_plan(*job, *DDP, "checkpoint.every_n_steps=1", "max_epochs=2", folder="whole")
    expected = start(plan)
    assert (expected["before"], expected["starts"]) == (5, 2)
    same_after_kill(plan, 3, expected=expected)
    begun = trained(make_user_plan(*job, *DDP, "max_epochs=1", folder="begun"))
    path = f"ckpt_path='{begun / 'checkpoints' / 'last.ckpt'}'"
    ended = start(make_user_plan(*job, *SINGLE, "max_epochs=2", path, folder="ended"))
    assert (ended["before"], ended["starts"]) == (5, 2)
    assert ended["worst"] == expected["worst"]


@pytest.mark.slow
def test_frozen_layers_are_resumed(make_user_plan: MakeUserPlan) -> None:
    """Within the second epoch, whose beginning is not called again. A BackboneFinetuning stops BatchNorm's statistics,
    and adds parameters to the optimizer there.
    """
    plan = make_user_plan(*TUNED, "callbacks=thaw_all", *DDP, "checkpoint.every_n_steps=1")
    same_after_kill(plan, 8)


KILLS = [
    ("classifier", DDP, 7),
    *(
        pytest.param(*kill, marks=pytest.mark.slow)
        for kill in (
            ("autoencoder", SINGLE, 3),  # checks in on_load_checkpoint the arrays that it has saved
            ("gan", DDP, 3),
            ("stream", VIRTUAL, 7),
        )
    ),
]


@pytest.mark.parametrize(("name", "world", "step"), KILLS)
def test_resumed_after_a_kill_in_any_step(
    name: str, world: tuple[str, ...], step: int, make_user_plan: MakeUserPlan
) -> None:
    """Metrics and means of an epoch under way, schedules, samples drawn anew: the record is the same to the byte."""
    plan = make_user_plan(*MODULES[name], *world, "checkpoint.every_n_steps=2")
    same_after_kill(plan, step)
