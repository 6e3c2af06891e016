"""The loss of a LightningModule is scaled for float16 by Lightning: here on a CPU, with torch's scaler."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.plugins.precision import MixedPrecision

from lockstep.lit import run
from lockstep.plan import Plan
from tests.comparing import lines
from tests.conftest import IN_PROCESS, MakeUserPlan, require_refused
from tests.rank_helpers import ALONE, with_engine
from tests.test_user_module import MODULES, SINGLE

pytestmark = IN_PROCESS
TOO_LARGE = 2.0**30
"""The first steps overflow and are left out; each halves the scale."""


@pytest.fixture
def _scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    original = pl.Trainer

    def create(*, precision: str, plugins: list[Any], **options: Any) -> pl.Trainer:
        scaler = torch.amp.GradScaler("cpu", init_scale=TOO_LARGE)
        return original(plugins=[*plugins, MixedPrecision("16-mixed", "cpu", scaler)], **options)

    monkeypatch.setattr(pl, "Trainer", create)


def trained(plan: Plan, name: str) -> Path:
    folder = Path(plan.run_dir) / name
    run(with_engine(plan, "lightning", folder), ALONE)
    return folder / "checkpoints" / "last.ckpt"


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
def test_the_scale_goes_on_from_a_checkpoint(job: tuple[str, ...], make_user_plan: MakeUserPlan) -> None:
    """Steps that overflow are left out; a run of three epochs is one of one and two more."""
    plan = make_user_plan(*job, *SINGLE, "max_epochs=3")
    whole, first = trained(plan, "whole"), trained(replace(plan, max_epochs=1), "first")
    resumed = trained(replace(plan, ckpt_path=str(first)), "resumed")
    states = [torch.load(path, weights_only=True)["MixedPrecision"] for path in (whole, resumed, first)]
    assert states[0] == states[1] != states[2]
    assert 1 < states[0]["scale"] < TOO_LARGE
    tensors = [lines(path.parents[1], "tensor") for path in (whole, resumed)]
    assert tensors[0] == tensors[1]


def test_manual_optimization_is_refused(make_user_plan: MakeUserPlan) -> None:
    plan = make_user_plan(*MODULES["gan"], *SINGLE)
    sentence = "precision=16-mixed: GAN optimizes manually, and the loss of automatic optimization alone is scaled"
    require_refused(sentence, lambda: replace(plan, precision="16-mixed", accelerator="gpu"))
