"""What a real run leaves for its page: the seconds of its ranks, pictures, counts."""

import gzip
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import Subset, TensorDataset

import lockstep
from lockstep.engine.notes import RunNotes, class_counts
from lockstep.models import Classifier
from tests.conftest import IN_PROCESS, MakePlan

pytestmark = IN_PROCESS


class SlowOnRank1(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if dist.get_rank() == 1:
            time.sleep(0.1)
        return super().training_step(batch, batch_idx)


@pytest.mark.slow
def test_the_rank_that_was_slowed_is_marked(tmp_path: Path) -> None:
    words = ["model=mlp", f"model._target_={__name__}.SlowOnRank1", "data=digits", "max_epochs=1", "threads=1"]
    words += ["strategy=ddp", "devices=2", "logger=none", "model.net.hidden=[4]", "trainer.limit_train_batches=8"]
    words += ["profiler=timeline", "engine.fast_loop=false"]  # as under engine=both
    result = lockstep.run([*words, f"hydra.run.dir={tmp_path}/run"])
    page, notes = (tmp_path / "run" / "report.html").read_text(), json.loads((tmp_path / "run/report.json").read_text())
    assert "Rank 1 is the slowest</strong>: forward takes it" in page
    waits = [rank["communication"] for rank in notes["ranks"]]
    assert waits[0] > waits[1] + 0.4  # of 0.8 seconds
    assert {each["kind"] for each in notes["pictures"]} == {"wrong", "random"}
    assert notes["samples"] == {"val": 180, "test": 360}
    assert sum(notes["classes"]["counts"]["test"]) == 360
    assert notes["environment"]["torch"]
    assert f"{result['test/acc']:.4g} on 360 samples" in page
    check_timeline(tmp_path / "run" / "profiler" / "timeline.json.gz")
    assert "The seconds of ranks are those of its 6 steps." in page  # without the first two
    fast, slow = notes["timeline"]["ranks"]
    assert fast["communication"] > 0.5 > slow["communication"]
    assert slow["forward"] > 0.6 > fast["forward"]


def check_timeline(path: Path) -> None:
    """Check that an arrow joins each call of a collective on rank 0 with the call in the same place on rank 1."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}
    calls, arrows = defaultdict[int, list[Any]](list), defaultdict[int, list[Any]](list)
    for event in sorted(events, key=lambda each: float(each["ts"])):
        if event["name"].startswith("c10d::") and event["ph"] == "X":
            calls[event["pid"]].append((event["name"], event["ts"]))
        elif event["cat"] == "collective":
            arrows[event["id"]].append((event["ph"], event["pid"], (event["name"], event["ts"])))
    assert len(arrows) == len(calls[0]) == len(calls[1]) >= 6
    for (begins, a, left), (ends, b, right) in arrows.values():
        assert begins + ends == "sf"
        assert calls[a].index(left) == calls[b].index(right)
        assert {a, b} == {0, 1}


def test_pages_take_one_percent_of_the_time(make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    now, pages = 0.0, list[float]()

    def write(folder: Path) -> None:
        nonlocal now
        pages.append(now)
        now += 0.5

    monkeypatch.setattr("lockstep.engine.notes.time.perf_counter", lambda: now)
    monkeypatch.setattr("lockstep.runs.report.report", write)
    notes = RunNotes(make_plan("data=digits", "model=mlp", "logger=none"), 0)
    for epoch in range(1, 131):
        now += 1.0
        notes.end_epoch(epoch, now, [{"forward": now}])
    assert pages == [20.0, 70.5, 121.0]


def test_class_counts_of_targets_in_memory() -> None:
    dataset: Any = TensorDataset(torch.zeros(5, 2), torch.tensor([0, 2, 2, 1, 2]))
    assert class_counts(dataset, 4) == [1, 1, 3, 0]
    assert class_counts(TensorDataset(torch.zeros(5, 2)), 4) is None
    dataset.targets = [0, 2, 2, 1, 2]
    assert class_counts(Subset(dataset, [0, 1]), 3) == [1, 0, 1]
