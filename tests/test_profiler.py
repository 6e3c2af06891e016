"""`profiler=simple|pytorch`: what a run spends its time on: no result changes."""

import json
from pathlib import Path

import pytest

from lockstep.engine import run
from tests.conftest import IN_PROCESS, MakePlan
from tests.rank_helpers import ALONE

pytestmark = IN_PROCESS
SMALL = ("data.val_size=300", "max_epochs=2", "logger=none", "trainer.limit_train_batches=6")


def test_tables_of_phases_and_operations(
    make_plan: MakePlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digests = []
    for profiler in ("null", "simple", "pytorch"):
        digests.append(run(make_plan(*SMALL, f"profiler={profiler}"), ALONE)["digest"])
        shown = capsys.readouterr().out
        for name, (title, rows) in TABLES.items():
            table = shown.split(title)[-1].split()
            assert shown.count(title) == int(profiler == name)
            assert profiler != name or {*rows} <= {*table}, shown
    assert len({*digests}) == 1
    trace = json.loads((tmp_path / "profiler" / "rank_0.pt.trace.json").read_text())
    names = [event.get("name") for event in trace["traceEvents"]]
    assert names.count("Optimizer.step#Adam.step") == 5, "of batches 4 to 8"


TABLES = {
    "simple": ("\nphase ", ("start", "data", "forward", "backward", "optimizer", "rest", "val", "test", "total")),
    "pytorch": ("profile of the training batches 4 to 8\n", ("aten::addmm", "aten::mm", "Calls")),
}


def test_a_run_of_one_batch_has_a_profile(
    make_plan: MakePlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(make_plan("debug=fdr", "profiler=pytorch"), ALONE)
    assert "profile of the training batches 1 to 1\n" in capsys.readouterr().out
    assert (tmp_path / "profiler").is_dir()
