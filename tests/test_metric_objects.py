"""The torchmetrics of a module under precision=64-true, and over ranks."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torchmetrics import MaxMetric, MeanMetric, MeanSquaredError, Metric, MetricCollection
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
    MulticlassPrecision,
    MulticlassRecall,
)

from lockstep.engine.log import ExactLog
from lockstep.engine.logged_values import widen_metrics
from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.runs.run_files import Metrics
from tests.conftest import MakePlan
from tests.rank_helpers import on_ranks


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


class Measured(nn.Module):
    """Metrics whose states ranks add up, of several dtypes, one that takes the largest, and a collection."""

    def __init__(self) -> None:
        super().__init__()
        self.accuracy, self.f1 = MulticlassAccuracy(3), MulticlassF1Score(3)
        self.error, self.largest = MeanSquaredError(), MaxMetric()
        self.group = MetricCollection([MulticlassPrecision(3), MulticlassRecall(3)])
        self.confusion = MulticlassConfusionMatrix(3)

    def update(self, rank: int, samples: int) -> None:
        generator = torch.Generator().manual_seed(rank)
        logits = torch.rand(samples, 3, generator=generator)
        targets = torch.randint(3, (samples,), generator=generator)
        for metric in (self.accuracy, self.f1, self.group, self.confusion):
            metric.update(logits, targets)
        self.error.update(logits[:, 0], logits[:, 1].contiguous())
        self.largest.update(logits)


def doubled(metric: Metric) -> dict[str, torch.Tensor]:
    return {name: torch.as_tensor(state).double() for name, state in metric.metric_state.items()}


def logged(log: ExactLog, module: Measured) -> None:
    for name in ("accuracy", "f1", "error", "largest"):
        log.log(name, getattr(module, name))
    log.log_dict(module.group)


def measured_on_ranks(plan: Plan, context: RankContext) -> Metrics:
    """Rank 2 has no samples: it logs nothing. Values, messages, and states afterwards, beside those of torchmetrics."""
    module, reference = Measured(), Measured()
    log = ExactLog(module, context.rank)
    log.begin_epoch("val")
    if context.rank < 2:
        for each in (module, reference):
            each.update(context.rank, 5 + context.rank)
        log.begin_batch("val", 5 + context.rank)
        logged(log, module)
        log.enter("val")
    originals = {name: getattr(torch.distributed, name) for name in ("all_gather", "all_reduce", "barrier")}
    calls: list[str] = []

    def counted(name: str, *arguments: Any, **options: Any) -> Any:
        calls.append(name)
        return originals[name](*arguments, **options)

    for name in originals:
        setattr(torch.distributed, name, partial(counted, name))
    values = {entry.name: value for entry, value in log.epoch("val")}
    messages = len(calls)
    again = {entry.name: value for entry, value in log.epoch("val")}
    for name, original in originals.items():
        setattr(torch.distributed, name, original)
    expected = {name: float(getattr(reference, name).compute()) for name in ("accuracy", "f1", "error", "largest")}
    expected |= {name: float(value) for name, value in reference.group.compute().items()}
    states, wanted = (
        [str(doubled(metric)) for metric in each.modules() if isinstance(metric, Metric)]
        for each in (module, reference)
    )
    same = states == wanted
    return {"values": values, "again": again, "expected": expected, "same": same, "messages": messages}  # type: ignore[dict-item]


def test_states_that_ranks_add_up_take_one_message(make_plan: MakePlan) -> None:
    """The values are those of torchmetrics, though in float64; its objects keep this rank's states."""
    result = on_ranks(make_plan("strategy=ddp", "devices=3", "batch_size=6"), measured_on_ranks)
    assert result["values"] == pytest.approx(result["expected"], rel=1e-6)
    assert result["again"] == result["values"]
    assert result["same"]
    assert result["messages"] == 2 + 1 + 2, "logged values, states, and the largest value, which torchmetrics gathers"
