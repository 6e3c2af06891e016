"""The torchmetrics of a module under precision=64-true, and over ranks."""

import pytest
import torch
from torch import nn
from torchmetrics import MeanMetric
from torchmetrics.classification import (
    MulticlassAUROC,
)

from lockstep.engine.log import ExactLog
from lockstep.engine.logged_values import widen_metrics
from tests.conftest import MakePlan


def test_only_floating_states_become_float64(make_plan: MakePlan) -> None:
    """Labels that a metric collects stay whole numbers: AUROC counts them."""
    plan = make_plan("precision=64-true")
    auroc, mean = MulticlassAUROC(2), MeanMetric()
    module = nn.ModuleList([auroc, mean])
    for scores, targets in (([[0.9, 0.1], [0.6, 0.4]], [0, 1]), ([[0.3, 0.7], [0.8, 0.2]], [1, 0])):
        widen_metrics(plan, module)
        auroc.update(torch.tensor(scores, dtype=torch.float64), torch.tensor(targets))
        mean.update(torch.tensor(scores[0][0], dtype=torch.float64))
    widen_metrics(plan, module)
    assert auroc.compute().item() == 1.0
    assert mean.compute().item() == pytest.approx((0.9 + 0.3) / 2, abs=1e-15)
    assert {state.dtype for state in auroc.target} == {torch.int64}


def test_a_metric_that_the_last_hook_of_a_stage_logs() -> None:
    """It has values in that hook alone: before it, the stage's other values are computed."""
    metric = MulticlassAUROC(2)
    log = ExactLog(nn.ModuleList([metric]), rank=0)
    for _ in range(2):
        log.begin_epoch("val")
        log.log("val_loss", 2.0)
        assert [(entry.name, value) for entry, value in log.epoch("val")] == [("val_loss", 2.0)]
        metric.update(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 1]))
        log.log("auroc", metric)
        assert {entry.name: value for entry, value in log.end_epoch("val")} == {"val_loss": 2.0, "auroc": 1.0}
