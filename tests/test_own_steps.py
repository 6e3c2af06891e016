"""Steps of a LightningModule without a loss, or without an optimizer: alike in both engines, and no rank waits."""

import pytest

from lockstep.compare import compare
from lockstep.config_error import ConfigError
from lockstep.schemas.engine import ENGINES
from tests.conftest import MakeOwn
from tests.test_own_module import DDP, SINGLE, VIRTUAL, by_both, trained

FSDP = ("strategy=fsdp", "devices=2")
ONCE = ("model=regressor", "model._target_=strange_modules.OnceByHand", "data=stream")
SKIPPING = ("model=regressor", "model._target_=strange_modules.Skipping", "data=stream")


@pytest.mark.filterwarnings("ignore:.*returned `None`")
def test_one_rank_may_leave_out_a_step(make_own: MakeOwn) -> None:
    runs = by_both(make_own(*SKIPPING, *SINGLE, folder="both"))
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
        trained(make_own(*SKIPPING, "+model.result=dict", *SINGLE, f"engine={engine}"))
    assert str(refused.value) == (
        "model=Skipping: its training_step returns a dict without a tensor as its loss; write one whose dictionary "
        "has it under the key loss."
    )


def test_steps_of_no_optimizer_are_counted_alike(make_own: MakeOwn) -> None:
    job = ("model=untrained", "data=uneven_data")
    for name, world in (("single", SINGLE), ("ddp", DDP)):
        runs = by_both(make_own(*job, *world, folder=name))
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


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "world",
    [
        pytest.param(DDP, id="ddp"),
        pytest.param(VIRTUAL, id="virtual", marks=pytest.mark.slow),
        pytest.param(FSDP, id="fsdp", marks=pytest.mark.slow),
    ],
)
def test_one_backward_pass_of_two_is_averaged(world: tuple[str, ...], engine: str, make_own: MakeOwn) -> None:
    """The other's gradient would be each rank's own. One that is zeroed before the step does no harm."""
    with pytest.raises(ConfigError, match=r"^model=OnceByHand: it steps by gradients of loss.backward\(\), which nob"):
        trained(make_own(*ONCE, *world, f"engine={engine}"))
    dropped = (*ONCE, "+model.zeroed=true", "precision=64-true", "max_epochs=1", f"engine={engine}")
    runs = [trained(make_own(*dropped, *own, folder=own[0])) for own in (SINGLE, world)]
    verdict = compare(runs[0], runs[1])
    assert verdict.within_tolerance, verdict.text()
    assert verdict.max_diff < 1e-10


def test_a_rank_that_leaves_out_a_backward_pass_is_not_waited_for(make_own: MakeOwn) -> None:
    """Whose weights lie in shards: the others would wait for its part of the gradient."""
    own = ("+model.zeroed=true", "+model.skips=[1]", "process_group.timeout=60", "engine=raw")
    with pytest.raises(ConfigError, match=r"calls self\.manual_backward as often on every rank"):
        trained(make_own(*ONCE, *FSDP, *own))
