"""Steps of a LightningModule without a loss, or without an optimizer: alike in both engines, and no rank waits."""

import pytest

from lockstep.compare import compare
from lockstep.config_error import ConfigError
from lockstep.schemas.engine import ENGINES
from tests.conftest import MakeOwn
from tests.test_own_module import DDP, SINGLE, VIRTUAL, trained

SKIPPING = ("model=regressor", "model._target_=strange_modules.Skipping", "data=stream")


@pytest.mark.filterwarnings("ignore:.*returned `None`")
def test_one_rank_may_leave_out_a_step(make_own: MakeOwn) -> None:
    runs = [trained(make_own(*SKIPPING, *SINGLE, f"engine={engine}", folder=engine)) for engine in ENGINES]
    verdict = compare(runs[0], runs[1])
    assert verdict.verdict == "identical", verdict.text()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("ranks", "world"), [("[1]", DDP), pytest.param("[0,1]", DDP, marks=pytest.mark.slow), ("[0,1]", VIRTUAL)]
)
def test_one_of_several_ranks_may_not(ranks: str, world: tuple[str, ...], engine: str, make_own: MakeOwn) -> None:
    """No rank waits for the others: the run ends at once."""
    plan = make_own(*SKIPPING, f"+model.ranks={ranks}", *world, f"engine={engine}")
    with pytest.raises(ConfigError) as refused:
        trained(plan)
    assert str(refused.value) == (
        "model=Skipping: its training_step returns None, and the other of 2 ranks would wait for its gradient; write "
        "one that returns a loss, 0 * that of the batch, say, or strategy=single, which skips the step."
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_no_loss_is_said(engine: str, make_own: MakeOwn) -> None:
    with pytest.raises(ConfigError) as refused:
        trained(make_own(*SKIPPING, "+model.made=dict", *SINGLE, f"engine={engine}"))
    assert str(refused.value) == (
        "model=Skipping: its training_step returns a dict without a tensor as its loss; write one that returns a loss, "
        "0 * that of the batch, say."
    )


def test_steps_of_no_optimizer_are_counted_alike(make_own: MakeOwn) -> None:
    job = ("model=untrained", "data=uneven_data")
    for name, world in (("single", SINGLE), ("ddp", DDP)):
        runs = [trained(make_own(*job, *world, f"engine={engine}", folder=f"{name}-{engine}")) for engine in ENGINES]
        verdict = compare(runs[0], runs[1])
        assert verdict.verdict == "identical", verdict.text()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("world", [DDP, VIRTUAL, SINGLE], ids=["ddp", "virtual", "single"])
def test_gradients_that_nobody_averages_are_refused(world: tuple[str, ...], engine: str, make_own: MakeOwn) -> None:
    plan = make_own(
        "model=regressor", "model._target_=strange_modules.OwnBackward", "data=stream", *world, f"engine={engine}"
    )
    if world is SINGLE:
        assert trained(plan)
        return
    with pytest.raises(ConfigError) as refused:
        trained(plan)
    assert str(refused.value) == (
        "model=OwnBackward: it steps by gradients of loss.backward(), which nobody averages over ranks; write one that "
        "calls self.manual_backward(loss) instead."
    )
