"""The curves of runs, thinned so that a page stays small."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from lockstep.base.config_error import is_number
from lockstep.runs.compare.comparison import difference
from lockstep.runs.compare.recorded_run import mean_loss
from lockstep.runs.report.run_view import STAGES, RunView

POINTS = 24_000  # of all curves of a page
FEWEST, MOST = 40, 800  # points of a curve
FEW = 25  # points up to which each is marked
Points = Sequence[tuple[float, float | None]]
Chart = dict[str, Any]


def budget(n_curves: int) -> int:
    """Return the points of each of so many curves."""
    return max(FEWEST, min(MOST, POINTS // max(1, n_curves)))


def thinned(points: Points, most: int) -> Points:
    """Return about `most` points: of each of equal ranges the first, the smallest, the largest, and the last."""
    ranges, places = max(1, most // 4), range(len(points))
    if len(points) <= most:
        return points
    chosen: set[int] = set()
    for within in (places[n * len(points) // ranges : (n + 1) * len(points) // ranges] for n in range(ranges)):
        numbers = [(value, place) for place in within if (value := points[place][1]) is not None] or [(0.0, within[0])]
        chosen |= {within[0], within[-1], min(numbers)[1], max(numbers)[1]}
    return [points[place] for place in sorted(chosen)]


def chart(title: str, x: str, lines: Mapping[str, Points], **options: Any) -> Chart:
    """Return a chart of lines by name. `options`: `log`, `dashed` (names), `note`."""
    named = [{"name": name, "points": [*map(_plain, points)]} for name, points in lines.items() if points]
    return {"title": title, "x": x, "lines": named, "marks": [n for n in lines if len(lines[n]) < FEW], **options}


def _plain(point: tuple[float, float | None]) -> list[float | None]:
    x, y = point
    return [x, float(f"{y:.6g}") if y is not None and is_number(y) and isfinite(y) else None]


def curves(runs: Mapping[str, RunView]) -> list[Chart]:
    """Return charts of the loss, each value that is logged, the rate and the gradient norm over optimizer steps."""
    lines: dict[str, dict[str, Points]] = defaultdict(dict)
    for label, view in runs.items():
        for quantity, stage, points in _quantities(view):
            lines[quantity][f"{label} {stage}".strip() or quantity] = points
    most = budget(sum(map(len, lines.values())))
    last = ("learning rate", "gradient norm")
    return [
        chart(
            quantity,
            "step",
            {name: thinned(points, most) for name, points in lines[quantity].items()},
            dashed=[name for name in lines[quantity] if len(runs) > 1 and name.endswith(" val")],
        )
        for quantity in sorted(lines, key=lambda name: (name != "loss", name in last))
    ]


def _quantities(view: RunView) -> Iterator[tuple[str, str, Points]]:
    """Yield the quantity, the stage and the points of each curve."""
    steps, logged = view.steps.values(), defaultdict[tuple[str, str], list[tuple[float, float | None]]](list)
    for line in steps:
        logged["loss", "train"].append((line["step"], mean_loss(line)))
        logged["learning rate", ""].append((line["step"], line["lr"]))
        logged["gradient norm", ""].append((line["step"], line.get("grad_norm")))
        for name, value in {**line.get("logged", {}), **line.get("metrics", {})}.items():
            if name not in ("train/loss", "train/loss_step"):
                logged[f"{name}, each step", ""].append((line["step"], value))
    for step, values in view.validations:
        for name, value in values.items():
            stage, _, metric = name.partition("/")
            if name != "train/loss" or not steps:
                logged[(metric, stage) if stage in STAGES and metric else (name, "")].append((step, value))
    for metric, stage in sorted(logged, key=lambda key: [*STAGES, key[1]].index(key[1])):
        yield metric, stage, logged[metric, stage]


def difference_chart(left: RunView, right: RunView) -> Chart:
    """Return the difference of each step that both runs have, absolute below 1 and relative above; none for 0."""
    places, lines = sorted(left.steps.keys() & right.steps.keys()), dict[str, Points]()
    for name, of in (("loss", mean_loss), ("gradient norm", lambda line: line.get("grad_norm"))):
        values = [(at[1], difference(of(left.steps[at]), of(right.steps[at])) or None) for at in places]
        lines |= {name: thinned(values, MOST)} if any(value for _, value in values) else {}
    note = "A gap is a difference of 0." if lines else f"The difference is 0 at each of {len(places)} steps."
    return chart("difference", "step", lines, log=True, note=note if places else "They have no step in common.")
