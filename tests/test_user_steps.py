"""Jobs of a LightningModule that are refused, steps without a loss or an optimizer, forms of configure_optimizers."""

from pathlib import Path

import pytest

from lockstep.base.config_error import ConfigError
from tests.comparing import require_identical
from tests.conftest import MakeUserPlan, require_refused
from tests.test_user_module import DDP, MODULES, SINGLE, by_both, trained

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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*returned `None`")
def test_a_single_rank_may_skip_a_step(make_user_plan: MakeUserPlan) -> None:
    require_identical(*by_both(make_user_plan(*SKIPPING, *SINGLE, folder="both")))


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        ((*SKIPPING, "+model.ranks=[1]", *DDP), SKIPPED),
        ((*SKIPPING, "+model.result=dict", *SINGLE), NO_LOSS),
        ((*USER_BACKWARD, *DDP), NOT_AVERAGED),
    ],
    ids=["skips", "no-loss", "backward"],
)
def test_steps_that_are_refused(job: tuple[str, ...], sentence: str, make_user_plan: MakeUserPlan) -> None:
    """No rank waits for the others: the run ends at once."""
    with pytest.raises(ConfigError) as refused:
        trained(make_user_plan(*job))
    assert str(refused.value) == sentence


INVALID = {
    "model=gan data=blobs_data accumulate_grad_batches=2": "accumulate_grad_batches=2: GAN optimizes manually, and",
    "model=gan data=blobs_data strategy=virtual devices=2": "model=GAN: it optimizes manually, and strategy=virtual",
    "model=classifier data=none": "data=none: it has no train_dataloader; write data with one.",
    "model=classifier data=blobs_data optimizer.lr=0.1": "optimizer.lr=0.1: the chosen model configures its optim",
}


@pytest.mark.parametrize("words", INVALID)
def test_invalid_jobs_are_rejected(words: str, make_user_plan: MakeUserPlan) -> None:
    require_refused(INVALID[words], make_user_plan, *words.split())


def test_a_pytorch_lightning_module_is_rejected(
    make_user_plan: MakeUserPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pytorch_lightning")
    (tmp_path / "of_old_name.py").write_text(
        "import pytorch_lightning as pl\n\n\nclass Old(pl.LightningModule):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    sentence = "it derives from pytorch_lightning, not from lightning; write import lightning.pytorch as pl in its file"
    require_refused(sentence, make_user_plan, "model=regressor", "model._target_=of_old_name.Old", "data=stream")


def test_a_monitor_that_nothing_logs_is_named(make_user_plan: MakeUserPlan) -> None:
    plan = make_user_plan(*MODULES["stream"], "checkpoint.monitor=val_acc")
    with pytest.raises(ConfigError, match=r"^checkpoint.monitor=val_acc: Regressor logs no such value; write one of "):
        trained(plan)


def test_manual_optimization_is_known_before_setup(make_user_plan: MakeUserPlan) -> None:
    plan = make_user_plan("model=regressor", "model._target_=strange_steps.LateManual", "data=stream")
    with pytest.raises(ConfigError, match=r"^model=LateManual: it sets automatic_optimization after it was created"):
        trained(plan)


PLATEAUED = ("model=regressor", "model._target_=strange_steps.Plateaued", "data=stream")


def test_a_plateau_of_steps_is_refused(make_user_plan: MakeUserPlan) -> None:
    plan = make_user_plan(*PLATEAUED, *SINGLE, "+model.monitor=val_loss", "+model.interval=step")
    with pytest.raises(ConfigError, match=r"^scheduler=ReduceLROnPlateau: it steps after each batch; write one with"):
        trained(plan)


@pytest.mark.slow
def test_lbfgs_is_refused_on_several_ranks(make_user_plan: MakeUserPlan) -> None:
    with pytest.raises(
        ConfigError, match=r"^optimizer=LBFGS: its line search would go by each rank's own loss; write strategy"
    ):
        trained(make_user_plan(*MODULES["late"], *DDP))
