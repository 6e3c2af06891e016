"""Lightning callbacks in both engines: the same numbers, or an error."""

import csv

import pytest

from lockstep.compare import compare
from lockstep.config_error import ConfigError
from lockstep.schemas.engine import ENGINES
from tests.comparing import lines, metrics_in, require_close, require_identical
from tests.conftest import MakeUserPlan, require_refused
from tests.resuming import same_after_kill
from tests.test_user_module import DDP, MODULES, SINGLE, by_both, trained

JOB = MODULES["classifier"]
STOPPING = (
    *("callbacks=early_stopping", "callbacks.early_stopping.monitor=val_count/dataloader_idx_0"),
    *("callbacks.early_stopping.patience=1", "max_epochs=5"),
)
"""A value that never improves."""


@pytest.mark.parametrize(
    ("callbacks", "world", "epochs"),
    [
        (STOPPING, DDP, 2),
        (("callbacks=[ema,timer,model_summary]", "callbacks.ema.decay=0.5"), SINGLE, 2),
    ],
)
def test_both_engines_call_callbacks_alike(
    callbacks: tuple[str, ...], world: tuple[str, ...], epochs: int, make_user_plan: MakeUserPlan
) -> None:
    runs = by_both(make_user_plan(*JOB, *world, *callbacks, folder="both"))
    require_identical(runs[0], runs[1])
    assert metrics_in(runs[0])["epochs"] == epochs
    without = trained(make_user_plan(*JOB, *world, "engine=raw", "max_epochs=5", folder="without"))
    assert compare(runs[1], without).verdict != "identical"


def test_changes_by_callbacks_count_in_both_engines(make_user_plan: MakeUserPlan) -> None:
    """Within an epoch, too."""
    job = ("model=mlp", "data=digits", "max_epochs=2", "checkpoint.every_n_steps=null", "callbacks=strange")
    runs = by_both(make_user_plan(*job, *SINGLE))
    require_identical(*runs)
    assert metrics_in(runs[0])["steps"] == 40, "no epoch ended early"


@pytest.mark.parametrize("engine", ["raw", pytest.param("lightning", marks=pytest.mark.slow)])
def test_the_state_of_callbacks_is_resumed(engine: str, make_user_plan: MakeUserPlan) -> None:
    plan = make_user_plan(*JOB, *DDP, *STOPPING, f"engine={engine}", "checkpoint.every_n_steps=2")
    same_after_kill(plan, 8)


@pytest.mark.parametrize(("name", "error"), [("throughput", "Expected a precision plugin"), ("swa", "max_epochs")])
def test_a_callback_that_needs_lightnings_trainer_fails_by_raw(
    name: str, error: str, make_user_plan: MakeUserPlan
) -> None:
    with pytest.raises(Exception, match=error):
        trained(make_user_plan(*JOB, *SINGLE, f"callbacks={name}", "engine=raw", "logger=csv"))


def test_learning_rates_are_logged_alike(make_user_plan: MakeUserPlan) -> None:
    """LearningRateMonitor reads private attributes; it logs at the logged steps, also for a plain net."""
    net = ("model=mlp", "model.hidden=[6]", "data=blobs", "batch_size=16", "scheduler=onecycle", *DDP)
    curves = []
    for engine in ENGINES:
        options = ("callbacks=lr_monitor", "logger=csv", "log_every_n_steps=2", f"engine={engine}")
        with next(trained(make_user_plan(*net, *options, folder=engine)).glob("csv/**/metrics.csv")).open() as file:
            curves.append([(row["step"], row["lr-Adam"]) for row in csv.DictReader(file) if row["lr-Adam"]])
    assert curves[0] == curves[1]
    assert [int(step) for step, _ in curves[0]] == [1, 3, 5, 7, 9, 11]


SCHEDULED = ("callbacks=gradient_accumulation_scheduler", "max_epochs=4")
KEY = "callbacks.gradient_accumulation_scheduler.scheduling"


def scheduled(*changes: int) -> tuple[str, ...]:
    """Return overrides that change the batches of a step in epochs 1 and 3, counted from 0."""
    return *SCHEDULED, f"{KEY}={{1:{changes[0]},3:{changes[1]}}}"


@pytest.mark.parametrize(
    ("job", "steps"),
    [
        (JOB, [5, 2, 2, 1]),  # of 5 batches
        (("model=mlp", "model.hidden=[6]", "data=blobs", "batch_size=16", "scheduler=onecycle"), [6, 2, 2, 2]),
        pytest.param(MODULES["stream"], [4, 2, 2, 1], marks=pytest.mark.slow),
    ],
    ids=["module", "net", "stream"],
)
def test_batches_of_a_step_change_by_epoch(
    job: tuple[str, ...], steps: list[int], make_user_plan: MakeUserPlan
) -> None:
    """In a ragged epoch both engines are bit-equal, and two ranks equal one process."""
    options = (*job, *(("+model.norm=false",) if job is JOB else ()), *scheduled(3, 5), "precision=64-true")
    runs = {
        (engine, world): trained(make_user_plan(*options, *worlds, f"engine={engine}", folder=f"{engine}-{world}"))
        for engine in ENGINES
        for world, worlds in (("single", SINGLE), ("ddp", DDP))
        if (engine, world) != ("lightning", "single")
    }
    require_identical(runs["lightning", "ddp"], runs["raw", "ddp"])
    require_close(runs["raw", "single"], runs["raw", "ddp"])
    assert metrics_in(runs["raw", "ddp"])["steps"] == sum(steps)
    recorded = lines(runs["raw", "ddp"], "step")
    epochs = [[step["samples"] for step in recorded if step["epoch"] == epoch] for epoch in (1, 2, 3, 4)]
    assert [len(samples) for samples in epochs] == steps
    assert len({sum(samples) for samples in epochs}) == 1


@pytest.mark.parametrize("engine", ["lightning", pytest.param("raw", marks=pytest.mark.slow)])
def test_resumed_in_an_epoch_of_other_steps(engine: str, make_user_plan: MakeUserPlan) -> None:
    """Within the third epoch, steps 9 to 11: callbacks are not called at the start of a resumed epoch."""
    plan = make_user_plan(*JOB, *DDP, *scheduled(2, 4), f"engine={engine}", "checkpoint.every_n_steps=1")
    same_after_kill(plan, 10)


SCHEDULE, STOP = " ".join(scheduled(2, 4)), "model=mlp data=digits callbacks=early_stopping callbacks.early_stopping"
INVALID = {
    f"{SCHEDULE} accumulate_grad_batches=2": "accumulate_grad_batches=2: callbacks.gradient_accumulation_",
    f"{SCHEDULE} {KEY}={{1:0}}": "it is {EPOCH: BATCHES}, epochs from 0; write callbacks.gradient_accumulation_sch",
    f"{SCHEDULE} model=gan": "callbacks=GradientAccumulationScheduler: GAN optimizes manually, and accumulates",
    "callbacks=timer callbacks.timer._target_=torch.nn.Identity": "=torch.nn.Identity: it makes a Identity, and not",
    f"{STOP}.monitor=val_loss": "monitor=val_loss: this run does not measure it; write one of train/loss",
}


@pytest.mark.parametrize("words", INVALID)
def test_invalid_callbacks_are_rejected(words: str, make_user_plan: MakeUserPlan) -> None:
    require_refused(INVALID[words], make_user_plan, *JOB, *SINGLE, *words.split())


def test_metrics_of_a_plain_net_can_be_monitored(make_user_plan: MakeUserPlan) -> None:
    make_user_plan(*f"{STOP}.monitor=val/f1".split())


@pytest.mark.parametrize("engine", ["raw", pytest.param("lightning", marks=pytest.mark.slow)])
def test_a_module_may_not_change_the_schedule(engine: str, make_user_plan: MakeUserPlan) -> None:
    """Its batches would have wrong weights."""
    with pytest.raises(ConfigError, match=r"callbacks=GradientAccumulationScheduler: it changes how many batches a"):
        trained(make_user_plan("model=unseen", "data=blobs_data", *SINGLE, f"engine={engine}"))
