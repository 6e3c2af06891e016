"""The best value of a metric: by hand, and after a resume."""

from dataclasses import replace
from pathlib import Path

from lockstep.runs.checkpoint.best import BestMetric
from lockstep.runs.checkpoint.files import FOLDER, LAST
from tests.conftest import IN_PROCESS, MakePlan
from tests.rank_helpers import ALONE, ENGINES
from tests.test_record_file import SMALL

pytestmark = IN_PROCESS


def improvements(best: BestMetric, values: list[float]) -> list[bool]:
    improved = []
    for epoch, value in enumerate(values, start=1):
        best.update(value, epoch)
        improved.append(best.is_new)
    return improved


def test_best_is_the_first_of_equals_and_nan_is_worst() -> None:
    accuracies = [float("nan"), 0.25, 0.5, 0.5, float("nan"), 0.25]
    assert improvements(best := BestMetric("val/acc"), accuracies) == [True] * 3 + [False] * 3
    assert best.metrics() == {"monitor": "val/acc", "mode": "max", "best": 0.5, "best_epoch": 3}
    assert improvements(best := BestMetric("val/loss"), [3.0, 4.0, 2.0, 2.0 + 1e-12]) == [True, False, True, False]
    assert best.metrics() == {"monitor": "val/loss", "mode": "min", "best": 2.0, "best_epoch": 3}
    assert improvements(BestMetric("val/loss", "max"), [3.0, 4.0]) == [True, True]


def test_best_of_a_resumed_run_is_of_the_same_metric() -> None:
    before = BestMetric("val/acc")
    before.update(0.75, epoch=4)
    for name, is_same in (("val/acc", True), ("", True), ("val/f1", False)):
        after = BestMetric(name)
        after.restore(before.state())
        assert after.metrics() == (before.metrics() if is_same else {})
        after.update(0.7, epoch=5)
        assert after.is_new == (not is_same)


def test_best_in_a_new_folder_is_of_its_own_epochs(make_plan: MakePlan, tmp_path: Path) -> None:
    """With a rate of 0 all epochs are equal, and the first is the best: in the same folder that of the first run."""
    plan = replace(
        make_plan(*SMALL, "optimizer.lr=0", "checkpoint.monitor=train/acc", "max_epochs=1"), run_dir=str(tmp_path)
    )
    assert ENGINES["lightning"](plan, ALONE)["best_epoch"] == 1
    later = replace(plan, max_epochs=2, ckpt_path=str(tmp_path / FOLDER / LAST))
    for resume, epoch in ((False, 2), (True, 1)):
        (folder := tmp_path / str(epoch)).mkdir()
        run_dir = str(tmp_path if resume else folder)
        assert ENGINES["lightning"](replace(later, resume=resume, run_dir=run_dir), ALONE)["best_epoch"] == epoch
