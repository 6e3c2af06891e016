"""Curves are thinned without losing an extreme; a difference is weighed by what is known of chance."""

import random

import pytest

from lockstep.runs.report.chance import judgement
from lockstep.runs.report.curves import chart, thinned
from lockstep.runs.report.pages import slowest
from lockstep.runs.run_files import PHASES


def test_thinned_points_keep_ends_and_extremes() -> None:
    drawn = random.Random(0)
    points = [(float(step), drawn.random()) for step in range(10_001)]
    points[1234], points[7654] = (1234.0, 9.0), (7654.0, -9.0)
    few = thinned(points, 400)
    assert len(few) <= 400
    assert {points[0], points[1234], points[7654], points[-1]} <= {*few}
    assert few == sorted(few)
    assert thinned(points, 20_000) == points


def test_numbers_that_json_lacks_are_gaps() -> None:
    [line] = chart("loss", "step", {"train": [(1, 0.123456789), (2, float("nan")), (3, None)]})["lines"]
    assert line["points"] == [[1, 0.123457], [2, None], [3, None]]


@pytest.mark.parametrize(
    ("metric", "a", "b", "samples", "better", "verdict"),
    [
        ("acc", [0.9], [0.95], 10_000, "b", "more than chance: ±0.0073 by 10000 samples"),
        ("acc", [0.9], [0.95], 100, "b", "may be chance: ±0.073 by 100 samples"),
        ("loss", [0.9], [0.95], 100, "a", "unknown: one run each"),
        ("loss", [0.90, 0.91, 0.92], [0.5, 0.51, 0.52], None, "b", "more than chance: ±0.023 by 3 and 3 seeds"),
        ("loss", [0.5, 0.9], [0.6, 0.7], None, "b", "may be chance"),
        ("acc", [0.9], [0.9], 100, "", "equal"),
    ],
)
def test_what_is_better_and_whether_it_is_chance(
    metric: str, a: list[float], b: list[float], samples: int | None, better: str, verdict: str
) -> None:
    judged = judgement(metric, a, b, samples)
    assert judged["better"] == better
    assert judged["chance"].startswith(verdict)


def test_the_slowest_rank_is_the_one_that_waits_least() -> None:
    def rank(forward: float, communication: float) -> dict[str, float]:
        return {**dict.fromkeys(PHASES, 0.1), "forward": forward, "communication": communication}

    assert slowest([rank(1, 2), rank(2.8, 0.2), rank(1, 2)]) == 1
    assert slowest([rank(1, 2), rank(1.1, 1.9)]) is None
    assert slowest([rank(1, 0)]) is None
