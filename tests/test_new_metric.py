"""A metric that is added in one place appears everywhere: two runs of a copy with two more entries."""

import csv
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score

from lockstep import data
from lockstep.plan import Plan
from lockstep.session.task import create_net
from tests.checkpoints import net_state
from tests.comparing import require_identical
from tests.conftest import ROOT, Command, events_of

PLACE = '    Mean("acc", "max", correct),\n'
ENTRIES = """\
    Mean("miss3", "min", lambda outputs, targets: (outputs.topk(3).indices != targets[:, None]).all(1).sum()),
    FromConfusion("recall", "max", lambda counts: float((counts.diagonal().double() / counts.sum(1)).mean())),
"""
USER_CODE = (
    *("strategy=ddp", "devices=2", "accelerator=cpu", "threads=1", "model.hidden=[8]", "optimizer.lr=0.1"),
    *("data.test_size=361", "data.val_size=61", "batch_size=60", "max_epochs=4", "checkpoint.monitor=val/miss3"),
)


@pytest.mark.slow
def test_one_entry_is_a_metric_everywhere(command: Command, make_plan: Callable[..., Plan]) -> None:
    tree = command.folder / "tree"
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "conf", tree / "conf")
    shutil.copy(ROOT / "train.py", tree)
    place = tree / "src" / "lockstep" / "objectives" / "classification.py"
    assert place.read_text().count(PLACE) == 1
    place.write_text(place.read_text().replace(PLACE, PLACE + ENTRIES))

    path = os.pathsep.join([str(tree / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    words = (sys.executable, str(tree / "train.py"), "-m", "engine=raw,lightning", *USER_CODE)
    ended = command(*words, PYTHONPATH=path)
    assert ended.status == 0, ended.err
    [table] = command.folder.glob("logs/train/sweeps/*/sweep.csv")
    heading = next(line for line in ended.out.splitlines() if line.startswith("job  "))
    assert "test acc  test miss3  test recall" in heading
    with table.open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        job = table.parent / row["job"]
        metrics = json.loads((job / "metrics.json").read_text())
        miss3, recall = expected(job, make_plan(*USER_CODE[:-1]))
        assert metrics["test/miss3"] == float(row["test_miss3"]) == miss3 > 0
        assert metrics["test/recall"] == float(row["test_recall"]) == pytest.approx(recall, abs=1e-12)
        assert "train/miss3" in metrics
        assert "train/recall" not in metrics
        check_validation(job, metrics["val/miss3"])
    require_identical(table.parent / "0", table.parent / "1")


def expected(job: Path, plan: Plan) -> tuple[float, float]:
    """Of the net that the run left, on the 361 digits of the test split, by sorting and by scikit-learn."""
    tensors = data.load(plan.data)
    net = create_net(plan, tensors)
    net.load_state_dict(net_state(job / "checkpoints" / "last.ckpt"))
    batch = tensors.as_float(tensors.test[torch.arange(361)], torch.float32)
    logits = net(batch.inputs).tolist()
    ranked = [sorted(range(10), key=row.__getitem__)[-3:] for row in logits]
    missed = sum(target not in best for target, best in zip(batch.targets.tolist(), ranked, strict=True))
    return missed / 361, balanced_accuracy_score(batch.targets, [best[-1] for best in ranked])


def check_validation(job: Path, last: float) -> None:
    """A value an epoch in the record and on the curve; the best checkpoint is of the epoch that misses least."""
    lines = map(json.loads, (job / "record.jsonl").read_text().splitlines())
    validations = [line["validation"] for line in lines if "validation" in line]
    missed = [line["val/miss3"] for line in validations]
    assert missed[-1] == last
    assert all(0 < line["val/recall"] < 1 for line in validations)
    best = torch.load(job / "checkpoints" / "best.ckpt", weights_only=True)
    assert best["epoch"] == missed.index(min(missed)) != missed.index(max(missed))
    events = events_of(job)
    assert [point.value for point in events.Scalars("val/miss3")] == pytest.approx(missed, abs=1e-6)
    assert {"val/recall", "test/miss3", "test/recall"} <= {*events.Tags()["scalars"]}
