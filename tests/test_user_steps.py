"""Steps of a LightningModule without a loss or an optimizer: both engines agree, and no rank waits."""

import pytest

from lockstep.config_error import ConfigError
from tests.comparing import require_identical
from tests.conftest import MakeUserPlan
from tests.test_user_module import DDP, SINGLE, VIRTUAL, by_both, trained

STREAM = ("model=regressor", "data=stream")
SKIPPING = (*STREAM, "model._target_=strange_steps.Skipping")
USER_BACKWARD = (*STREAM, "model._target_=strange_steps.UserBackward")
SKIPPED = (
    "model=Skipping: its training_step returns None, and the other of 2 ranks would wait for its gradient; write one "
    "that returns a loss, or a dictionary with loss."
)
NO_LOSS = (
    "model=Skipping: its training_step returns a dict without a loss; write one that returns a loss, or a dictionary "
    "with loss."
)
NOT_AVERAGED = (
    "model=UserBackward: it steps by gradients of loss.backward(), which nobody averages over ranks; write one that "
    "calls self.manual_backward(loss) instead."
)


@pytest.mark.filterwarnings("ignore:.*returned `None`")
@pytest.mark.parametrize("job", [SKIPPING, pytest.param(USER_BACKWARD, marks=pytest.mark.slow)])
def test_a_single_rank_may_skip_a_step_or_go_backward_itself(
    job: tuple[str, ...], make_user_plan: MakeUserPlan
) -> None:
    require_identical(*by_both(make_user_plan(*job, *SINGLE, folder="both")))


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        ((*SKIPPING, "+model.ranks=[1]", *DDP, "engine=lightning"), SKIPPED),
        ((*SKIPPING, "+model.ranks=[0,1]", *VIRTUAL, "engine=raw"), SKIPPED),
        ((*SKIPPING, "+model.result=dict", *SINGLE, "engine=raw"), NO_LOSS),
        ((*USER_BACKWARD, *DDP, "engine=lightning"), NOT_AVERAGED),
        ((*USER_BACKWARD, *VIRTUAL, "engine=raw"), NOT_AVERAGED),
    ],
    ids=["skips", "skips-virtual", "no-loss", "backward", "backward-virtual"],
)
def test_steps_that_are_refused(job: tuple[str, ...], sentence: str, make_user_plan: MakeUserPlan) -> None:
    """No rank waits for the others: the run ends at once."""
    with pytest.raises(ConfigError) as refused:
        trained(make_user_plan(*job))
    assert str(refused.value) == sentence


def test_steps_of_no_optimizer_are_counted_alike(make_user_plan: MakeUserPlan) -> None:
    for name, world in (("single", SINGLE), ("ddp", DDP)):
        require_identical(*by_both(make_user_plan("model=untrained", "data=uneven_data", *world, folder=name)))
