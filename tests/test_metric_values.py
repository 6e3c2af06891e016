"""Metrics of torchmetrics over batches and ranks, beside those of the whole split at once."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torchmetrics.classification import MulticlassAUROC, MulticlassRecall

from lockstep.base.private_api.torchmetrics import widen_counts
from lockstep.command.inference import load
from lockstep.datamodules import CSV, Digits
from tests.comparing import metrics_in
from tests.conftest import MakePlan, MakeUserPlan, require_refused
from tests.test_user_module import trained
from tests.user_code.strange_metrics import Metrics, split

EXACT = ("precision=64-true", "max_epochs=1")


@pytest.mark.parametrize("engine", ["lightning", pytest.param("raw", marks=pytest.mark.slow)])
def test_metrics_are_those_of_the_whole_split(engine: str, make_user_plan: MakeUserPlan) -> None:
    """Of counts, sums, all scores, and scores in groups; a rank of two has no sample of the last batch."""
    folder = trained(
        make_user_plan("model=measured", "data=none", f"engine={engine}", *EXACT, "strategy=ddp", "devices=2")
    )
    net, measured = load(folder).net.double(), metrics_in(folder)
    for stage in ("val", "test"):
        x, *targets = split(stage).tensors
        metrics = Metrics()
        metrics.update(net(x.double()).detach(), *targets)
        for name, metric in metrics.values().items():
            widen_counts(metric)
            assert measured[f"{stage}/{name}"] == pytest.approx(float(metric.compute()), abs=1e-12), (stage, name)
        assert measured[f"{stage}/by_hand"] == pytest.approx(measured[f"{stage}/f1"], abs=1e-12)


def chosen(make_plan: MakePlan, metrics: str, *words: str) -> tuple[nn.Module, dict[str, float]]:
    plan = make_plan(f"++model.metrics={metrics}", "max_epochs=1", "strategy=ddp", "devices=2", "logger=none", *words)
    folder = trained(plan)
    return load(folder), metrics_in(folder)


def test_metrics_of_a_yaml_beside_a_classifier(make_plan: MakePlan) -> None:
    """By names and by targets, which get the number of classes; exact in float32, too."""
    recall = "recall:{_target_:torchmetrics.classification.MulticlassRecall}"
    words = ("data=digits", "data.val_size=41", "data.test_size=61", "batch_size=8", "trainer.limit_train_batches=9")
    module, measured = chosen(make_plan, f"{{auroc:auroc,{recall}}}", "model=mlp", *words)
    data = Digits(val_size=41, test_size=61)
    data.setup()
    for stage in ("val", "test"):
        x, targets = data.on_after_batch_transfer([*data.datasets[stage].tensors], 0)
        scores = module(x).detach().double().softmax(1)
        for name, metric in (("auroc", MulticlassAUROC(10)), ("recall", MulticlassRecall(10))):
            expected = float(metric.set_dtype(torch.float64)(scores, targets))
            assert measured[f"{stage}/{name}"] == pytest.approx(expected, abs=1e-12)
            assert 0.1 < expected < 0.999


def test_metrics_of_a_regressor_are_those_by_hand(make_plan: MakePlan, tmp_path: Path) -> None:
    """Of 21 samples, and of one, which a rank of two does not have; of small targets."""
    values = np.random.default_rng(0).normal([5, 1e-4], [2, 1e-4], (60, 2))
    np.savetxt(tmp_path / "table.csv", values, delimiter=",", header="x,y", comments="")
    words = ("data=csv", f"data.file={tmp_path / 'table.csv'}", "data.target=y", "data.val_size=1", "data.test_size=21")
    folder = trained(
        make_plan(*words, "model=regression", "optimizer.lr=1e-5", "logger=none", *EXACT, "strategy=ddp", "devices=2")
    )
    data = CSV(str(tmp_path / "table.csv"), "y", val_size=1, test_size=21)
    data.setup()
    inputs, targets = data.datasets["test"].tensors
    outputs = load(folder).double()((inputs - data.means) / data.deviations).detach().numpy()
    y, error, measured = targets.numpy(), outputs - targets.numpy(), metrics_in(folder)
    expected = {"rmse": (error**2).mean() ** 0.5, "mae": abs(error).mean(), "r2": 1 - (error**2).sum() / (21 * y.var())}
    for name, value in expected.items():
        assert measured[f"test/{name}"] == pytest.approx(value, rel=1e-10)
    assert measured["val/rmse"] == pytest.approx(measured["val/mae"], rel=1e-10)
    assert measured["val/r2"] == 0.0, "one sample has no variance"


def test_a_metric_that_there_is_none_of(make_plan: MakePlan, tmp_path: Path) -> None:
    words = ("++model.metrics=[aurok]", "data=points")
    require_refused("model.metrics=aurok: there is no such metric (did you mean auroc?); write", make_plan, *words)
