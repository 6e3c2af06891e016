"""Lightning's callbacks beside a LightningModule, by either engine: the same numbers, or a refusal by name."""

import csv
import json

import pytest

from lockstep.compare import compare
from lockstep.config_error import ConfigError
from lockstep.schemas.engine import ENGINES
from tests.conftest import MakeOwn
from tests.test_own_module import DDP, MODULES, SINGLE, trained
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
    runs = [trained(make_own(*JOB, *world, *callbacks, f"engine={engine}", folder=engine)) for engine in ENGINES]
    verdict = compare(runs[0], runs[1])
    assert verdict.verdict == "identical", verdict.text()
    assert json.loads((runs[0] / "metrics.json").read_text())["epochs"] == epochs
    without = trained(make_own(*JOB, *world, "engine=raw", "max_epochs=5", folder="without"))
    assert compare(runs[1], without).verdict != "identical"


@pytest.mark.parametrize("engine", ENGINES)
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


@pytest.mark.parametrize(("name", "asked"), [("throughput", "_evaluation_loop"), ("swa", "fit_loop")])
def test_what_asks_for_more_than_the_raw_engine_has_is_refused(name: str, asked: str, make_own: MakeOwn) -> None:
    with pytest.raises(ConfigError, match=rf"it asks for trainer\.{asked}\S*, which engine=raw has not; write"):
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


def test_how_many_batches_a_step_has_is_the_plans(make_own: MakeOwn) -> None:
    own = ("callbacks=timer", "callbacks.timer._target_=lightning.pytorch.callbacks.GradientAccumulationScheduler")
    with pytest.raises(ConfigError, match=r"^callbacks=GradientAccumulationScheduler: it changes within"):
        make_own(*JOB, *SINGLE, *own, "~callbacks.timer.duration", "+callbacks.timer.scheduling={0:2}")


def test_what_is_no_callback_is_refused(make_own: MakeOwn) -> None:
    plan = make_own(*JOB, *SINGLE, "callbacks=timer", "callbacks.timer._target_=torch.nn.Identity", "engine=raw")
    with pytest.raises(ConfigError, match=r"^callbacks.timer._target_=torch.nn.Identity: it makes a Identity, and not"):
        trained(plan)


def test_a_plain_nets_names_are_known_before_it_trains(make_own: MakeOwn) -> None:
    own = ("model=mlp", "data=digits", "callbacks=early_stopping")
    with pytest.raises(ConfigError, match=r"^callbacks.early_stopping.monitor=val_loss: no epoch .* one of train/loss"):
        make_own(*own, "callbacks.early_stopping.monitor=val_loss")
    make_own(*own, "callbacks.early_stopping.monitor=val/f1", folder="known")
