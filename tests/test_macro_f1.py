"""Macro-F1 and confusion counts of real runs, held against scikit-learn on the whole test split in one process."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sklearn.metrics import confusion_matrix, f1_score

from lockstep import data
from lockstep.plan import Plan
from lockstep.session.task import create_net
from tests.checkpoints import net_state
from tests.rank_helpers import ENGINES, by_engines, on_ranks

USER_CODE = (
    "model=mlp",
    "model.hidden=[16]",
    "max_epochs=2",
    "batch_size=60",
    "logger=none",
    "checkpoint.monitor=val/f1",
)


@pytest.mark.parametrize(("strategy", "devices"), [("single", 1), ("ddp", 3), ("dp", 2)])
def test_counts_are_of_every_sample_once(strategy: str, devices: int, make_plan: Callable[..., Plan]) -> None:
    """361 test digits on three ranks: 121, 120, 120. The net is bad enough for all classes to be confused."""
    plan = make_plan(f"strategy={strategy}", f"devices={devices}", "data.test_size=361", *USER_CODE)
    on_ranks(plan, by_engines)
    tensors = data.load(plan.data)
    net = create_net(plan, tensors)
    for name in ENGINES:
        folder = Path(plan.run_dir) / name
        net.load_state_dict(net_state(folder / "checkpoints" / "last.ckpt"))
        ids = torch.arange(361)
        batch = tensors.test.as_float(tensors.test[ids], torch.float32)
        predicted = net(batch.inputs).argmax(1)
        with (folder / "confusion.csv").open() as file:
            header, *rows = csv.reader(file)
        assert header == ["true", *(f"predicted {label}" for label in range(10))]
        counts = [[int(cell) for cell in row[1:]] for row in rows]
        assert counts == confusion_matrix(batch.targets, predicted, labels=range(10)).tolist()
        measured = json.loads((folder / "metrics.json").read_text())
        assert measured["test/f1"] == pytest.approx(f1_score(batch.targets, predicted, average="macro"), abs=1e-12)
        assert measured["test/acc"] == sum(counts[label][label] for label in range(10)) / 361
        assert 0.1 < measured["test/f1"] < 0.999
    both = [(Path(plan.run_dir) / name / "confusion.csv").read_bytes() for name in ENGINES]
    assert both[0] == both[1]
