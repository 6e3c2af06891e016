"""Lightning's callbacks beside a LightningModule, by either engine: the same numbers, or a refusal by name."""

import csv
import json

import pytest

from lockstep.compare import compare
from lockstep.config_error import ConfigError
from lockstep.schemas.engine import ENGINES
from tests.conftest import MakeOwn
from tests.test_own_module import DDP, MODULES, SINGLE, by_both, trained
from tests.test_resume import same_after_kill, start

JOB = MODULES["classifier"]
STOPPING = (
    *("callbacks=early_stopping", "callbacks.early_stopping.monitor=val_count/dataloader_idx_0"),
    *("callbacks.early_stopping.patience=1", "max_epochs=5"),
)
"""A value that never gets better."""


@pytest.mark.parametrize(
    ("callbacks", "world", "epochs"),
    [
        (STOPPING, DDP, 2),
        (("callbacks=[ema,timer,model_summary]", "callbacks.ema.decay=0.5"), SINGLE, 2),
    ],
)
def test_both_engines_call_them_alike(
    callbacks: tuple[str, ...], world: tuple[str, ...], epochs: int, make_own: MakeOwn
) -> None:
    runs = by_both(make_own(*JOB, *world, *callbacks, folder="both"))
    verdict = compare(runs[0], runs[1])
    assert verdict.verdict == "identical", verdict.text()
    assert json.loads((runs[0] / "metrics.json").read_text())["epochs"] == epochs
    without = trained(make_own(*JOB, *world, "engine=raw", "max_epochs=5", folder="without"))
    assert compare(runs[1], without).verdict != "identical"


@pytest.mark.parametrize("name", ["Copies", "Ends", "Thaws"])
def test_what_they_change_counts_in_both_engines(name: str, make_own: MakeOwn) -> None:
    """Within an epoch, too."""
    job = ("model=mlp", "data=digits", "max_epochs=2", "checkpoint.every_n_steps=null", "callbacks=strange")
    runs = by_both(make_own(*job, *SINGLE, f"callbacks.strange._target_=strange_callbacks.{name}", folder=name))
    verdict = compare(runs[0], runs[1])
    assert verdict.verdict == "identical", verdict.text()


def test_averaged_weights_of_a_plain_net_are_compared(make_own: MakeOwn) -> None:
    runs = by_both(make_own("model=mlp", "data=digits", "max_epochs=1", "callbacks=ema", *SINGLE, folder="both"))
    verdict = compare(runs[0], runs[1])
    assert verdict.verdict == "identical", verdict.text()


@pytest.mark.parametrize("engine", ["raw", pytest.param("lightning", marks=pytest.mark.slow)])
def test_a_resume_knows_how_patient_they_were(engine: str, make_own: MakeOwn, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_own(*JOB, *DDP, *STOPPING, f"engine={engine}", "checkpoint.every_n_steps=2")
    same_after_kill(plan, 8, start(plan, monkeypatch), monkeypatch)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:When using the `ThroughputMonitor`")
@pytest.mark.parametrize("callbacks", ["swa", "throughput", "rich_progress_bar"])
def test_those_that_only_lightning_runs(callbacks: str, make_own: MakeOwn) -> None:
    if "rich" in callbacks:
        pytest.importorskip("rich", reason="the package rich is missing")
    trained(make_own(*JOB, *SINGLE, f"callbacks={callbacks}", "engine=lightning", "logger=csv"))


@pytest.mark.parametrize(("name", "error"), [("throughput", "Expected a precision plugin"), ("swa", "max_epochs")])
def test_a_callback_that_needs_lightnings_trainer_fails_by_raw(name: str, error: str, make_own: MakeOwn) -> None:
    with pytest.raises(Exception, match=error):
        trained(make_own(*JOB, *SINGLE, f"callbacks={name}", "engine=raw", "logger=csv"))


def test_learning_rates_are_logged_alike(make_own: MakeOwn) -> None:
    """By LearningRateMonitor, which reads private names; at the steps that are logged, also of a plain net."""
    curves = []
    for engine in ENGINES:
        own = ("callbacks=lr_monitor", "logger=csv", "log_every_n_steps=2", f"engine={engine}", "scheduler=onecycle")
        plan = make_own("model=mlp", "model.hidden=[6]", "data=blobs", "batch_size=16", *DDP, *own, folder=engine)
        with next(trained(plan).glob("csv/**/metrics.csv")).open() as file:
            curves.append([(row["step"], row["lr-Adam"]) for row in csv.DictReader(file) if row["lr-Adam"]])
    assert curves[0] == curves[1]
    assert [int(step) for step, _ in curves[0]] == [1, 3, 5, 7, 9, 11]


SCHEDULED = ("callbacks=gradient_accumulation_scheduler", "max_epochs=4")
KEY = "callbacks.gradient_accumulation_scheduler.scheduling"


def scheduled(*changes: int) -> tuple[str, ...]:
    """From epochs 1 and 3 on, from 0."""
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
def test_batches_of_a_step_change_with_the_epochs(job: tuple[str, ...], steps: list[int], make_own: MakeOwn) -> None:
    """A ragged epoch; both engines to the bit, ranks to one process, and as far as it goes a run of one number."""
    own = (*job, *(("+model.norm=false",) if job is JOB else ()), *scheduled(3, 5), "precision=64-true")
    runs = {
        (engine, world): trained(make_own(*own, *worlds, f"engine={engine}", folder=f"{engine}-{world}"))
        for engine in ENGINES
        for world, worlds in (("single", SINGLE), ("ddp", DDP))
        if (engine, world) != ("lightning", "single")
    }
    verdict = compare(runs["lightning", "ddp"], runs["raw", "ddp"])
    assert verdict.verdict == "identical", verdict.text()
    verdict = compare(runs["raw", "single"], runs["raw", "ddp"])
    assert verdict.within_tolerance, verdict.text()
    assert verdict.max_diff < 1e-10
    assert json.loads((runs["raw", "ddp"] / "metrics.json").read_text())["steps"] == sum(steps)
    losses = [
        json.loads(line)["step"]
        for line in (runs["raw", "ddp"] / "record.jsonl").read_text().splitlines()[1:]
        if line.startswith('{"step"')
    ]
    assert [sum(step["epoch"] == epoch for step in losses) for epoch in (1, 2, 3, 4)] == steps
    samples = [sum(step["samples"] for step in losses if step["epoch"] == epoch) for epoch in (1, 2, 3, 4)]
    assert len({*samples}) == 1


@pytest.mark.parametrize("engine", ["lightning", pytest.param("raw", marks=pytest.mark.slow)])
def test_killed_in_an_epoch_of_other_steps(engine: str, make_own: MakeOwn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the third, of steps 9 to 11: no callback is called at the beginning of an epoch that is gone on with."""
    plan = make_own(*JOB, *DDP, *scheduled(2, 4), f"engine={engine}", "checkpoint.every_n_steps=1")
    same_after_kill(plan, 10, start(plan, monkeypatch), monkeypatch)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            (*scheduled(2, 4), "accumulate_grad_batches=2"),
            "accumulate_grad_batches=2: callbacks.gradient_accumulation_",
        ),
        (
            (*SCHEDULED, f"{KEY}={{1:0}}"),
            "epochs are ints from 0, batches are ints from 1; write callbacks.gradient_accumulation_sch",
        ),
        (
            (*SCHEDULED, f"{KEY}={{one:2}}"),
            "epochs are ints from 0, batches are ints from 1; write callbacks.gradient_accumulation",
        ),
        (
            (*SCHEDULED, f"{KEY}=2"),
            ".scheduling=2: it is {EPOCH: BATCHES}; write callbacks.gradient_accumulation_sched",
        ),
        (
            (*scheduled(2, 4), "model=gan"),
            "callbacks=GradientAccumulationScheduler: GAN optimizes manually, and accumulates",
        ),
    ],
)
def test_a_schedule_of_batches_that_cannot_be(words: tuple[str, ...], sentence: str, make_own: MakeOwn) -> None:
    with pytest.raises(ConfigError) as raised:
        make_own(*JOB, *SINGLE, *words)
    assert sentence in str(raised.value)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_module_may_not_change_it_unseen(engine: str, make_own: MakeOwn) -> None:
    """Nor a class that is derived from Lightning's: nobody would weigh its batches."""
    with pytest.raises(ConfigError, match=r"callbacks=GradientAccumulationScheduler: it changes how many batches a"):
        trained(make_own("model=unseen", "data=blobs_data", *SINGLE, f"engine={engine}"))


def test_what_is_no_callback_is_refused(make_own: MakeOwn) -> None:
    with pytest.raises(ConfigError, match=r"^callbacks.timer._target_=torch.nn.Identity: it makes a Identity, and not"):
        make_own(*JOB, *SINGLE, "callbacks=timer", "callbacks.timer._target_=torch.nn.Identity")


def test_a_plain_nets_names_are_known_before_it_trains(make_own: MakeOwn) -> None:
    own = ("model=mlp", "data=digits", "callbacks=early_stopping")
    with pytest.raises(ConfigError, match=r"^callbacks.early_stopping.monitor=val_loss: no epoch .* one of train/loss"):
        make_own(*own, "callbacks.early_stopping.monitor=val_loss")
    make_own(*own, "callbacks.early_stopping.monitor=val/f1", folder="known")
