"""The loss of a LightningModule is scaled for float16 alike by both engines: here on a CPU, with torch's scaler."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.plugins.precision import MixedPrecision

from lockstep.config_error import ConfigError
from lockstep.plan import Plan
from lockstep.raw import trainer
from lockstep.raw.trainer import Precision
from tests.comparing import require_identical
from tests.conftest import IN_PROCESS, MakeUserPlan, require_refused
from tests.rank_helpers import ALONE, ENGINES, with_engine
from tests.test_user_module import MODULES, SINGLE

pytestmark = IN_PROCESS
TOO_LARGE = 2.0**30
"""The first steps overflow and are left out; each halves the scale."""


class CpuScaling(Precision):
    """Raw's precision=16-mixed, on a CPU."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        super().__init__(plan, device)
        self.mixed = torch.float16
        self.scaler = torch.amp.GradScaler("cpu", init_scale=TOO_LARGE)
        self.scale = self.scaler.scale


@pytest.fixture
def _scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    original = pl.Trainer

    def create(*, precision: str, plugins: list[Any], **options: Any) -> pl.Trainer:
        scaler = torch.amp.GradScaler("cpu", init_scale=TOO_LARGE)
        return original(plugins=[*plugins, MixedPrecision("16-mixed", "cpu", scaler)], **options)

    monkeypatch.setattr(trainer, "Precision", CpuScaling)
    monkeypatch.setattr(pl, "Trainer", create)


def run(plan: Plan, engine: str) -> Path:
    folder = Path(plan.run_dir) / engine
    ENGINES[engine](with_engine(plan, engine, folder), ALONE)
    return folder


@pytest.mark.usefixtures("_scaled")
@pytest.mark.parametrize(
    "job",
    [
        (*MODULES["classifier"], "accumulate_grad_batches=2", "gradient_clip_val=0.5"),
        pytest.param(("model=masked", "data=sentences_data"), marks=pytest.mark.slow),
        pytest.param(
            ("model=regressor", "model._target_=strange_steps.Skipping", "data=stream"), marks=pytest.mark.slow
        ),
    ],
    ids=["classifier", "weights", "skips"],
)
def test_both_engines_scale_alike(job: tuple[str, ...], make_user_plan: MakeUserPlan) -> None:
    """Steps that overflow are left out, and the scale goes on from a checkpoint."""
    plan = make_user_plan(*job, *SINGLE, "max_epochs=3")
    runs = [run(plan, engine) for engine in ENGINES]
    require_identical(*runs)
    saved = [torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True) for folder in runs]
    assert saved[0]["MixedPrecision"] == saved[1]["MixedPrecision"]
    assert 1 < saved[0]["MixedPrecision"]["scale"] < TOO_LARGE


@pytest.mark.usefixtures("_scaled")
def test_steps_past_the_scaler_are_refused(make_user_plan: MakeUserPlan) -> None:
    job = ("model=regressor", "data=stream", *SINGLE)
    with pytest.raises(ConfigError, match=r"^model=UserStep: it overrides optimizer_step or steps by LBFGS, past"):
        run(make_user_plan(*job, "model._target_=strange_steps.UserStep"), "raw")


def test_manual_optimization_is_refused(make_user_plan: MakeUserPlan) -> None:
    plan = make_user_plan(*MODULES["gan"], *SINGLE)
    sentence = "precision=16-mixed: GAN optimizes manually, and the loss of automatic optimization alone is scaled"
    require_refused(sentence, lambda: replace(plan, precision="16-mixed", accelerator="gpu"))
