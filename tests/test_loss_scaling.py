"""The loss of a LightningModule is scaled for float16: here on a CPU, with torch's scaler."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.plugins.precision import MixedPrecision

from lockstep.engine import run
from lockstep.plan.plan import Plan
from tests.comparing import lines
from tests.conftest import IN_PROCESS, MakeUserPlan, require_refused
from tests.rank_helpers import ALONE
from tests.test_user_module import MODULES, SINGLE

pytestmark = IN_PROCESS
TOO_LARGE = 2.0**20
"""The first steps overflow and are left out; each halves the scale."""


@pytest.fixture
def _scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    original = pl.Trainer

    def create(*, precision: str, plugins: list[Any], **options: Any) -> pl.Trainer:
        scaler = torch.amp.GradScaler("cpu", init_scale=TOO_LARGE)
        return original(plugins=[*plugins, MixedPrecision("16-mixed", "cpu", scaler)], **options)

    monkeypatch.setattr(pl, "Trainer", create)


def trained(plan: Plan, name: str) -> dict[str, Any]:
    """Return the last checkpoint of a run in a folder of its own."""
    folder = Path(plan.run_dir) / name
    folder.mkdir()
    run(replace(plan, run_dir=str(folder)), ALONE)
    saved: dict[str, Any] = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    return saved


@pytest.mark.slow
@pytest.mark.usefixtures("_scaled")
def test_the_scale_goes_on_from_a_checkpoint(make_user_plan: MakeUserPlan) -> None:
    """Steps that overflow are left out, each norm is that of the unscaled gradient, and the weights are finite."""
    job = (*MODULES["classifier"], "accumulate_grad_batches=2", "gradient_clip_val=0.5")
    plan = make_user_plan(*job, *SINGLE, "max_epochs=8")
    uninterrupted = trained(plan, "uninterrupted")
    trained(replace(plan, max_epochs=1), "begun")
    last = Path(plan.run_dir) / "begun" / "checkpoints" / "last.ckpt"
    resumed = trained(replace(plan, ckpt_path=str(last)), "resumed")
    assert resumed["MixedPrecision"] == uninterrupted["MixedPrecision"]
    assert 1 < resumed["MixedPrecision"]["scale"] < TOO_LARGE
    assert all(torch.equal(resumed["state_dict"][name], each) for name, each in uninterrupted["state_dict"].items())
    norms = [line["grad_norm"] for line in lines(Path(plan.run_dir) / "uninterrupted", "step")]
    assert norms[0] is None, "it overflows"
    assert 0 < max(norm for norm in norms if norm is not None) < 1000, "unscaled"


def test_manual_optimization_is_refused(make_user_plan: MakeUserPlan) -> None:
    plan = make_user_plan(*MODULES["gan"], *SINGLE)
    sentence = "precision=16-mixed: GAN optimizes manually, and the loss of automatic optimization alone is scaled"
    require_refused(sentence, lambda: replace(plan, precision="16-mixed", accelerator="gpu"))
