"""`profiler=`: the table of phases, and Lightning's own profilers: no result changes."""

from pathlib import Path

import pytest

from lockstep.engine import run
from tests.conftest import IN_PROCESS, MakePlan
from tests.rank_helpers import ALONE

pytestmark = IN_PROCESS
SMALL = ("data.val_size=300", "max_epochs=2", "logger=none", "trainer.limit_train_batches=6")
PHASES = ("start", "data", "forward", "backward", "optimizer", "rest", "val", "test", "total")


@pytest.mark.slow
def test_profilers_change_no_result(make_plan: MakePlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digests = []
    for profiler in ("null", "simple", "timeline", "advanced", "pytorch"):
        digests.append(run(make_plan(*SMALL, f"profiler={profiler}"), ALONE)["digest"])
        table = capsys.readouterr().out.rpartition("\nphase ")[2].split()
        assert {*PHASES}.issubset(table) == (profiler == "simple")
    assert len({*digests}) == 1
    written = [path.read_text() for path in (tmp_path / "profiler").glob("*[!z]")]
    for operation in ("run_training_batch", "aten::addmm", "traceEvents"):
        assert any(operation in text for text in written)
