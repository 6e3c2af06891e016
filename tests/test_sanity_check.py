"""trainer.num_sanity_val_steps: validating some batches before training changes nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.launch.start import start_ranks
from lockstep.plan.schemas.run import ENGINES
from tests.comparing import metrics_in, require_identical
from tests.conftest import MakeUserPlan
from tests.resuming import going_on_with
from tests.test_user_module import CHECK, DDP, SINGLE, VIRTUAL, trained

TRACING = ("model=tracing", "data=blobs_data", "logger=csv", "log_every_n_steps=1")


def same(one: Path, other: Path) -> None:
    """Records, metrics and logged values."""
    require_identical(one, other)
    metrics = [metrics_in(run) for run in (one, other)]
    assert [values["worst"] for values in metrics] == [metrics[0]["worst"]] * 2
    assert [values["before"] for values in metrics] == [5.0] * 2
    tables = [next(run.glob("csv/**/metrics.csv")).read_text() for run in (one, other)]
    assert [len(table.splitlines()) for table in tables] == [len(tables[0].splitlines())] * 2


@pytest.mark.parametrize("world", [DDP, pytest.param(VIRTUAL, marks=pytest.mark.slow)])
def test_nothing_of_it_remains(world: tuple[str, ...], make_user_plan: MakeUserPlan) -> None:
    """Two batches of each loader; random numbers, metrics, values and files as without. All of them: -1."""
    run = trained(make_user_plan(*TRACING, *world, f"{CHECK}=2", folder="checked"))
    checked = (run / "checked.txt").read_text().split()
    assert [*dict.fromkeys(checked)] == ["0:0", "0:1", "1:0", "1:1"]
    same(trained(make_user_plan(*TRACING, *world, folder="usual")), run)


def test_a_run_that_begins_at_a_checkpoint_has_none(make_user_plan: MakeUserPlan) -> None:
    plan = make_user_plan(*TRACING, *SINGLE, f"{CHECK}=1", "trainer.max_steps=3")
    notes = trained(plan) / "checked.txt"
    assert notes.read_text() == "0:0 1:0 "
    start_ranks(replace(going_on_with(plan), trainer=replace(plan.trainer, max_steps=-1)), ENGINES["lightning"])
    assert notes.read_text() == "0:0 1:0 "
