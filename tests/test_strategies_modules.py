"""LightningModules with a `net`: dp, model_parallel and fsdp compute what `single` computes, by both engines."""

from pathlib import Path

import pytest
import torch

from lockstep.compare import compare
from lockstep.config_error import ConfigError
from lockstep.plan import Plan
from tests.checkpoints import net_state
from tests.comparing import lines, metrics_in, require_close, require_identical
from tests.conftest import MakeUserPlan, require_refused
from tests.resuming import same_after_kill
from tests.test_user_module import SINGLE, by_both, trained

JOB = ("model=with_net", "data=blobs_data", "precision=64-true", "test=true")
CONV = ("+model.kind=conv", "+model.optimizer=SGD", "+model.lr=0.05")
ACCUMULATED = ("accumulate_grad_batches=3", "gradient_clip_val=0.2")
RAGGED = ("+data.samples=101", "batch_size=9")
"""77 samples in batches of 9; the last has 5, and the last of an evaluation with batches of 8 has 5 or 3."""
STAGED = ("+model.kind=staged",)
DP2, DP3 = ("strategy=dp", "devices=2"), ("strategy=dp", "devices=3")
STAGES = ("strategy=model_parallel", "devices=2")
FSDP2, FSDP3 = ("strategy=fsdp", "devices=2"), ("strategy=fsdp", "devices=3")


def equal_to_single(make_user_plan: MakeUserPlan, job: tuple[str, ...], *world: str) -> list[Path]:
    """Return the runs of both engines, which are bit-equal, and close to one on a single device, its weights too."""
    single = trained(make_user_plan(*JOB, *job, *SINGLE, "engine=raw", folder="single"))
    runs = by_both(make_user_plan(*JOB, *job, *world, folder="both"))
    require_identical(*runs)
    for run in runs:
        require_close(single, run)
    expected, weights = (net_state(run / "checkpoints" / "last.ckpt") for run in (single, runs[0]))
    assert expected.keys() == weights.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(weights[name], weight, rtol=0, atol=1e-10)
    return [single, *runs]


@pytest.mark.parametrize(
    ("job", "world"),
    [
        pytest.param(RAGGED, DP3, id="dp-3"),
        pytest.param((*CONV, *ACCUMULATED), DP2, id="dp-2-conv"),
        pytest.param((*RAGGED, *ACCUMULATED), FSDP3, id="fsdp-3"),
        pytest.param((*CONV, *RAGGED), FSDP2, id="fsdp-2-conv"),
    ],
)
def test_in_float64_it_is_single(job: tuple[str, ...], world: tuple[str, ...], make_user_plan: MakeUserPlan) -> None:
    single, _, raw = equal_to_single(make_user_plan, job, *world)
    other = trained(make_user_plan(*JOB, *job, *world, "engine=raw", "seed=1", folder="other"))
    assert not compare(single, other).within_tolerance
    counted = [name for name in metrics_in(raw) if name.startswith("val_count")]
    assert len(counted) == 2
    assert [metrics_in(raw)[name] for name in counted] == [metrics_in(single)[name] for name in counted]


def test_stages_are_single_bit_for_bit(make_user_plan: MakeUserPlan) -> None:
    single, _, raw = equal_to_single(make_user_plan, (*STAGED, *ACCUMULATED), *STAGES)
    require_identical(single, raw)
    divided = trained(make_user_plan(*JOB, *STAGED, *STAGES, "engine=raw", "strategy.micro_batches=4", folder="micro"))
    whole = trained(make_user_plan(*JOB, *STAGED, *STAGES, "engine=raw", folder="whole"))
    require_close(divided, whole)
    assert compare(divided, whole).verdict != "identical"
