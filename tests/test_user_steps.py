"""Steps of a LightningModule without a loss or an optimizer: both engines agree, and no rank waits."""

import pytest

from lockstep.config_error import ConfigError
from tests.comparing import require_identical
from tests.conftest import MakeUserPlan
from tests.test_user_module import DDP, SINGLE, VIRTUAL, by_both, trained

SKIPPING = ("model=regressor", "model._target_=strange_steps.Skipping", "data=stream")


@pytest.mark.filterwarnings("ignore:.*returned `None`")
def test_one_rank_may_leave_out_a_step(make_user_plan: MakeUserPlan) -> None:
    require_identical(*by_both(make_user_plan(*SKIPPING, *SINGLE, folder="both")))


@pytest.mark.parametrize(("ranks", "world", "engine"), [("[1]", DDP, "lightning"), ("[0,1]", VIRTUAL, "raw")])
def test_one_of_several_ranks_may_not(
    ranks: str, world: tuple[str, ...], engine: str, make_user_plan: MakeUserPlan
) -> None:
    """No rank waits for the others: the run ends at once."""
    plan = make_user_plan(*SKIPPING, f"+model.ranks={ranks}", *world, f"engine={engine}")
    with pytest.raises(ConfigError) as refused:
        trained(plan)
    assert str(refused.value) == (
        "model=Skipping: its training_step returns None, and the other of 2 ranks would wait for its gradient; write "
        "one that returns a loss, or a dictionary with loss."
    )


def test_outputs_without_a_loss_are_rejected(make_user_plan: MakeUserPlan) -> None:
    with pytest.raises(ConfigError) as refused:
        trained(make_user_plan(*SKIPPING, "+model.result=dict", *SINGLE, "engine=raw"))
    assert str(refused.value) == (
        "model=Skipping: its training_step returns a dict without a loss; write one that returns a loss, or a "
        "dictionary with loss."
    )


def test_steps_of_no_optimizer_are_counted_alike(make_user_plan: MakeUserPlan) -> None:
    job = ("model=untrained", "data=uneven_data")
    for name, world in (("single", SINGLE), ("ddp", DDP)):
        require_identical(*by_both(make_user_plan(*job, *world, folder=name)))


@pytest.mark.parametrize(
    ("world", "engine"),
    [(DDP, "lightning"), (VIRTUAL, "raw"), pytest.param(SINGLE, "raw", marks=pytest.mark.slow)],
    ids=["ddp", "virtual", "single"],
)
def test_gradients_that_nobody_averages_are_refused(
    world: tuple[str, ...], engine: str, make_user_plan: MakeUserPlan
) -> None:
    plan = make_user_plan(
        "model=regressor", "model._target_=strange_steps.UserBackward", "data=stream", *world, f"engine={engine}"
    )
    if world is SINGLE:
        assert trained(plan)
        return
    with pytest.raises(ConfigError) as refused:
        trained(plan)
    assert str(refused.value) == (
        "model=UserBackward: it steps by gradients of loss.backward(), which nobody averages over ranks; write one "
        "that calls self.manual_backward(loss) instead."
    )
