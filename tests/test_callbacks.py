"""Lightning callbacks: the same numbers by both loops, and after a kill."""

import csv
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch

from lockstep.base.config_error import ConfigError
from lockstep.engine import run
from lockstep.runs.compare import compare
from lockstep.runs.record.fingerprint import digest
from tests.checkpoints import net_state
from tests.comparing import lines, metrics_in, require_identical
from tests.conftest import MakePlan, MakeUserPlan, require_refused
from tests.rank_helpers import ALONE
from tests.resuming import alike, going_on_with, same_after_kill
from tests.test_user_module import DDP, MODULES, SINGLE, by_both, trained

JOB = MODULES["classifier"]
AVERAGING = ("callbacks=swa", "+model.norm=false", "max_epochs=3")


@pytest.mark.slow
def test_both_loops_call_callbacks_alike(make_user_plan: MakeUserPlan) -> None:
    plan = make_user_plan(*JOB, *DDP, *AVERAGING, folder="both")
    runs = by_both(plan)
    require_identical(runs[0], runs[1])
    for folder in runs:
        metrics = metrics_in(folder)
        assert metrics["digest"] == digest(net_state(folder / "checkpoints" / "last.ckpt")), (
            "the weights that fit leaves"
        )
    alike(metrics_in(trained(going_on_with(replace(plan, run_dir=str(runs[1]))))), metrics)  # it is only tested again
    without = trained(make_user_plan(*JOB, *DDP, "max_epochs=3", folder="without"))
    assert compare(runs[1], without).verdict != "identical"


@pytest.mark.slow
def test_early_stopping_takes_the_metric_of_the_best_checkpoint(make_user_plan: MakeUserPlan) -> None:
    """Of a module that logs val_loss; a resumed run restores its state under that name."""
    job = ("model=measured", "data=none", "callbacks=early_stopping", "callbacks.early_stopping.patience=1")
    plan = make_user_plan(*job, "+callbacks.early_stopping.min_delta=10", "max_epochs=5", "checkpoint.monitor=val/f1")
    folder = trained(plan)
    assert metrics_in(folder)["epochs"] == 2
    state = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=False)["callbacks"]
    assert "EarlyStopping{'monitor': 'val/f1', 'mode': 'max'}" in state
    reason = r"^callbacks.early_stopping.monitor=nope: Measured logs no such value; write one of .*val/auroc"
    with pytest.raises(ConfigError, match=reason):
        trained(make_user_plan(*job, "callbacks.early_stopping.monitor=nope", folder="nope"))


@pytest.mark.slow
def test_the_state_of_callbacks_is_resumed(make_user_plan: MakeUserPlan) -> None:
    """With averages of BatchNorm's statistics, too."""
    same_after_kill(make_user_plan(*JOB, *DDP, "callbacks=ema", "callbacks.ema.decay=0.5"), 8)


@pytest.mark.slow
def test_training_goes_on_with_other_weights_than_fit_has_left(make_user_plan: MakeUserPlan) -> None:
    """Of two epochs and of one and another one the halves are the same."""
    halves = ("callbacks=strange", "callbacks.strange._target_=strange_callbacks.Halves")
    job = (*JOB, *SINGLE, *halves)
    first = trained(make_user_plan(*job, "max_epochs=1", folder="first"))
    path = f"ckpt_path='{first / 'checkpoints' / 'last.ckpt'}'"
    unbroken = trained(make_user_plan(*job, folder="unbroken"))
    second = trained(make_user_plan(*job, path, folder="second"))
    expected, resumed = (net_state(run / "checkpoints" / "last.ckpt") for run in (unbroken, second))
    torch.testing.assert_close(resumed, expected, rtol=0, atol=0)
    assert digest(expected) == metrics_in(unbroken)["digest"]


def test_learning_rates_are_logged(make_user_plan: MakeUserPlan) -> None:
    """At the logged steps, as LearningRateMonitor counts them, also for a plain net."""
    net = ("model=mlp", "model.net.hidden=[6]", "data=blobs", "batch_size=16", "scheduler=onecycle", *DDP)
    run = trained(make_user_plan(*net, "callbacks=lr_monitor", "logger=csv", "log_every_n_steps=2"))
    with next(run.glob("csv/**/metrics.csv")).open() as file:
        curve = {int(row["step"]): float(row["lr-Adam"]) for row in csv.DictReader(file) if row["lr-Adam"]}
    assert [*curve] == [1, 3, 5, 7, 9, 11]
    rates = [step["lr"] for step in lines(run, "step")]
    assert [*curve.values()] == pytest.approx([rates[step] for step in curve], rel=1e-6)


def test_what_is_no_callback_is_rejected(make_user_plan: MakeUserPlan) -> None:
    words = ("callbacks=timer", "callbacks.timer._target_=torch.nn.Identity")
    sentence = "callbacks.timer._target_=torch.nn.Identity: it makes a Identity, and not a Callback"
    require_refused(sentence, make_user_plan, *JOB, *SINGLE, *words)


def test_a_module_may_not_change_the_schedule(make_user_plan: MakeUserPlan) -> None:
    """Its batches would have wrong weights."""
    with pytest.raises(ConfigError, match=r"^callbacks=GradientAccumulationScheduler: it changes how many batches an"):
        trained(make_user_plan("model=unseen", "data=blobs_data", *SINGLE))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("process_as_it_was")
@pytest.mark.parametrize("fails", [False, True])
def test_an_ordinary_trainer_calls_the_same_hooks(fails: bool, make_user_plan: MakeUserPlan, tmp_path: Path) -> None:
    """In the same order: of a module, its data and a callback; also where training fails."""
    plan = make_user_plan(
        *("model=boring", "model._target_=strange_hooks.Module", "data=boring_data", "batch_size=16", *SINGLE),
        *("data._target_=strange_hooks.Data", "callbacks=strange", "callbacks.strange._target_=strange_hooks.Hooks"),
        *(f"+callbacks.strange.fails={fails}", "trainer.limit_val_batches=4", "trainer.limit_test_batches=4"),
    )
    import strange_hooks  # type: ignore[import-not-found]

    trainer = pl.Trainer(
        max_epochs=2, logger=False, enable_checkpointing=False, num_sanity_val_steps=0, default_root_dir=tmp_path,
        enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", limit_train_batches=4,
        limit_val_batches=4, limit_test_batches=4, callbacks=[strange_hooks.Hooks(fails)],
    )  # fmt: skip
    module, data, calls = strange_hooks.Module(), strange_hooks.Data(), []

    def by_trainer() -> None:
        trainer.fit(module, datamodule=data)
        trainer.test(module, datamodule=data)

    for training in (by_trainer, partial(run, plan, ALONE)):
        strange_hooks.CALLS.clear()
        with pytest.raises(ArithmeticError) if fails else nullcontext():
            training()
        calls.append([*strange_hooks.CALLS])
    assert "Hooks.on_exception" in calls[0] if fails else "Module.on_validation_model_train" in calls[0]
    assert calls[1] == calls[0]


def test_a_callback_that_trains_before_the_run_is_rejected(make_plan: MakePlan) -> None:
    with pytest.raises(ConfigError, match=r"callbacks.lr._target_=.*LearningRateFinder: it searches by trial steps"):
        make_plan("+callbacks.lr._target_=lightning.pytorch.callbacks.LearningRateFinder")


def test_a_pruned_run_is_not_resumed(make_user_plan: MakeUserPlan) -> None:
    """Its checkpoints have the weights without their masks, and pruned ones would grow again."""
    pruning = ("+callbacks.prune._target_=lightning.pytorch.callbacks.ModelPruning", "+callbacks.prune.amount=0.5")
    job = ("model=early", "data=none", *SINGLE, *pruning, "+callbacks.prune.pruning_fn=l1_unstructured")
    plan = make_user_plan(*job)
    metrics = metrics_in(trained(plan))
    tested = going_on_with(plan)
    alike(metrics_in(trained(tested)), metrics)  # it has nothing left to train
    with pytest.raises(ConfigError, match="callbacks=ModelPruning: no checkpoint holds its masks"):
        trained(replace(tested, max_epochs=5))
