"""Tables in the terminal, that over a sweep among them: what matters, as wide as the terminal at most."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep import run
from lockstep.base.text_table import columns_text, figures
from lockstep.runs.sweep.jobs import SweepJob, SweepRow, rows_of
from lockstep.runs.sweep.summary import format_table


def row(number: int, **varied: object) -> SweepRow:
    cells: dict[str, Any] = {
        "job": str(number),
        "best": "*" if number else "",
        "engine": "raw",
        "strategy": "ddp",
        "devices": 2,
    }
    measured: dict[str, Any] = {"samples_per_second": 12345.5, "best_val_acc": 0.5 + number / 10, "reason": ""}
    cells |= {"devices": 2, **varied, **measured, "train_loss": 1.0, "val_loss": 0.25, "test_acc": 0.75}
    return SweepRow(cells, varied, ranked="best_val_acc")


def words(line: str) -> str:
    return " ".join(line.split())


def test_what_varies_the_ranked_metric_and_the_test_have_columns() -> None:
    """The reasons of jobs without results are lines below."""
    rows = [row(number, **{"optimizer.lr": 10.0**-number}) for number in range(2)]
    refused = replace(rows[0], cells={**dict.fromkeys(rows[0].cells), "job": "2", "reason": "refused: devices=3: no"})
    heading, first, second, _, last = map(words, format_table([*rows, refused]).splitlines())
    assert heading == "job engine strategy devices lr best val_acc samples/s test acc"
    assert first == "0 raw ddp 2 1 0.5 12346 0.75"
    assert second == "1 * raw ddp 2 0.1 0.6 12346 0.75"
    assert last == "job 2 refused: devices=3: no"
    assert words(format_table(rows).splitlines()[0]) == "job lr best val_acc samples/s test acc"


def test_long_values_stay_distinguishable() -> None:
    paths = [f"/data/{'folder/' * 12}{name}.pt" for name in ("first", "second")]
    table = format_table([row(number, path=path) for number, path in enumerate(paths)])
    assert [path[:6] in table and path[-9:] in table for path in paths] == [True, True]
    assert paths[0] not in table


@pytest.mark.slow
@pytest.mark.usefixtures("process_as_it_was")
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_jobs_are_compared_with_the_first_of_their_plan(tmp_path: Path) -> None:
    """A speed-up needs other worlds, as of two jobs with other rates one is faster by chance; and equal batches."""
    limits = ("trainer.limit_train_batches=2", "trainer.limit_val_batches=1")
    small = ("logger=none", "test=false", "max_epochs=1", "threads=1", "strategy.in_process=true", *limits)
    ranks = ("strategy=virtual", "devices=2")
    worlds = (), ("optimizer.lr=0.2",), ("engine=both",), ranks, (*ranks, "batch_size=32")
    for number, words in enumerate(worlds):
        run(["optimizer.lr=0.1", *small, *words, f"hydra.run.dir={tmp_path / str(number)}"])
    jobs = [SweepJob(tmp_path / str(number), tmp_path) for number in range(len(worlds))]
    assert [(row.cells["speed_up"], row.cells["verdict"]) for row in rows_of(jobs[:2])] == [(None, "")] * 2
    *rows, other_batches = rows_of(jobs)
    assert (other_batches.cells["speed_up"], other_batches.cells["verdict"]) == (None, "")
    assert all(row.cells["speed_up"] for row in rows)
    verdicts = [row.cells["verdict"].partition(" ")[0] for row in rows]
    assert verdicts in (["reference", "reference", "identical", last] for last in ("identical", "within"))


def test_columns_line_up() -> None:
    table = columns_text(["job", "seconds"], [["a", "1.25"], ["longer", "12.5"]])
    assert table == "job     seconds\na          1.25\nlonger     12.5"


def test_three_figures_and_no_powers_of_ten() -> None:
    assert [figures(value) for value in (None, 0.0, 0.012345, 1.2345, 123.45, 12345.0, math.nan)] == [
        *("–", "0", "0.0123", "1.23", "123", "12345", "nan")
    ]
