"""Schedules by their import path: the rates of both engines are torch's own, and a resume goes on with them."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from lockstep.base.config_error import ConfigError
from tests import test_user_code
from tests.comparing import lines, require_identical
from tests.conftest import MakeUserPlan
from tests.resuming import same_after_kill, start
from tests.test_user_code import trained

make_user_plan = test_user_code.make_user_plan

TORCH = "torch.optim.lr_scheduler"
JOB = ("model=residual", "data=blobs", "optimizer=sgd", "optimizer.lr=0.5", "batch_size=24", "max_epochs=5")


def named(target: str, *arguments: str) -> tuple[str, ...]:
    given = ",".join((f"_target_:{target}", "_partial_:true", *arguments))
    return (f"+scheduler={{{given}}}",)


@pytest.mark.slow
def test_the_rates_are_torchs(make_user_plan: MakeUserPlan) -> None:
    """Of a schedule that is told the steps of the run."""
    typed = named(f"{TORCH}.OneCycleLR", "max_lr:0.5", "cycle_momentum:false")
    raw = trained(make_user_plan(*JOB, *typed, "engine=raw", folder="raw"))
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    scheduler, rates = OneCycleLR(optimizer, 0.5, total_steps=20, cycle_momentum=False), []
    for _ in range(20):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert [line["lr"] for line in lines(raw, "step")] == rates
    require_identical(raw, trained(make_user_plan(*JOB, *typed, "engine=lightning", folder="lightning")))


PLATEAU = named(f"{TORCH}.ReduceLROnPlateau", "patience:0", "factor:0.5", "threshold:0.05")
EPOCHS = 9


def test_a_plateau_of_the_monitored_metric(make_user_plan: MakeUserPlan) -> None:
    """It steps by the module's `monitor`; the rates follow from the metrics in the record."""
    job = (*JOB, *PLATEAU, f"max_epochs={EPOCHS}")
    raw = trained(make_user_plan(*job, "engine=raw", folder="raw"))
    rates, best = [0.5], 0.0
    for line in lines(raw, "validation"):
        better = not best or line["val/acc"] > best * 1.05
        best = line["val/acc"] if better else best
        rates.append(rates[-1] if better else rates[-1] / 2)
    steps = lines(raw, "step")
    assert [next(line["lr"] for line in steps if line["epoch"] == epoch + 1) for epoch in range(EPOCHS)] == rates[:-1]
    assert rates[-2] < 0.5
    require_identical(raw, trained(make_user_plan(*job, "engine=lightning", folder="lightning")))


@pytest.mark.slow
def test_killed_in_any_step_it_ends_the_same(make_user_plan: MakeUserPlan) -> None:
    """In the middle of an epoch, and in the first step at another rate, which the checkpoint before it has to know."""
    plan = make_user_plan(*JOB, *PLATEAU, "checkpoint.every_n_steps=1")
    expected = start(plan)
    rates = [line["lr"] for line in lines(Path(plan.run_dir), "step")]
    first = next(step for step, (before, rate) in enumerate(pairwise(rates), start=2) if rate != before)
    same_after_kill(plan, first, first + 2, expected=expected)


INVALID = {
    "scheduler.step_sise=2: StepLR takes no such argument (did you mean step_size?); write ": named(
        f"{TORCH}.StepLR", "step_sise:2"
    ),
    "model.scheduler_interval=hour: it is not one of the possible values; write one of step, epoch.": (
        *named(f"{TORCH}.StepLR", "step_size:2"),
        "+model.scheduler_interval=hour",
    ),
}


@pytest.mark.parametrize("sentence", INVALID)
def test_errors_come_before_any_rank_starts(sentence: str, make_user_plan: MakeUserPlan) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        make_user_plan(*JOB, *INVALID[sentence])
