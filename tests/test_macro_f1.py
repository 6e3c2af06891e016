"""Metrics and confusion counts of real runs, held against scikit-learn on whole splits in one process."""

import csv

import pytest
from sklearn.metrics import confusion_matrix, f1_score
from torch.nn.functional import cross_entropy

from lockstep.datamodules import Digits
from lockstep.engine.loaders.source import create_module
from lockstep.runs.record.fingerprint import digest
from tests.checkpoints import net_state
from tests.comparing import metrics_in
from tests.conftest import MakePlan
from tests.test_user_module import trained

JOB = (
    "model=mlp",
    "model.net.hidden=[16]",
    "max_epochs=2",
    "batch_size=60",
    "logger=none",
    "checkpoint.monitor=val/f1",
)


@pytest.mark.slow
def test_counts_are_of_every_sample_once(make_plan: MakePlan) -> None:
    """361 test digits on three ranks: 121, 120, 120. The net is bad enough for all classes to be confused."""
    plan = make_plan("strategy=ddp", "devices=3", "data.val_size=179", "data.test_size=361", *JOB)
    folder = trained(plan)
    data = Digits(val_size=179, test_size=361)
    data.setup()
    module = create_module(plan.model, plan.seed)
    module.load_state_dict(net_state(folder / "checkpoints" / "last.ckpt"))
    measured = metrics_in(folder)
    assert measured["digest"] == digest(module.state_dict())
    for stage in ("val", "test"):
        inputs, targets = data.on_after_batch_transfer([*data.datasets[stage].tensors], 0)
        outputs = module(inputs).detach()
        predicted = outputs.argmax(1)
        f1 = f1_score(targets, predicted, average="macro")
        assert measured[f"{stage}/f1"] == pytest.approx(f1, abs=1e-12)
        assert measured[f"{stage}/acc"] == (predicted == targets).double().mean().item()
        assert measured[f"{stage}/loss"] == pytest.approx(cross_entropy(outputs, targets).item(), rel=1e-5)
    with (folder / "confusion.csv").open() as file:
        header, *rows = csv.reader(file)
    assert header == ["true", *(f"predicted {label}" for label in range(10))]
    counts = [[int(cell) for cell in row[1:]] for row in rows]
    assert counts == confusion_matrix(targets, predicted, labels=range(10)).tolist()
    assert 0.1 < measured["test/f1"] < 0.999
