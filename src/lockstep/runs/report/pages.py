"""The content of a page about one run or two; the templates write it as sentences and tables."""

from collections.abc import Mapping, Sequence
from os.path import relpath
from pathlib import Path
from typing import Any

from lockstep.base.files import TIMELINE, read_json, short_path
from lockstep.plan.schemas.groups import short_keys
from lockstep.plan.schemas.run import ENGINES
from lockstep.runs.compare import compare
from lockstep.runs.report.chance import judgement
from lockstep.runs.report.curves import curves, difference_chart
from lockstep.runs.report.run_view import RunView, setup_of
from lockstep.runs.run_files import COMPARISON, METRICS, PHASES

FOLDERS = (*ENGINES,)  # of engine=both
LARGEST_LIST = 12  # confusions that are listed
NOTICEABLE = 0.05  # share of the training time by which a rank is slower than the fastest one
Content = dict[str, Any]


def run_page(folder: Path, reason: str = "", page: Path | None = None) -> Content:
    """Return the content of the page of a run. `reason`: what ended it early. `page`: the folder of the page."""
    view = RunView(folder)
    values = [word.lstrip("+").partition("=") for word in view.words]
    typed = short_keys({key: value for key, _, value in values})
    return {
        **_parts(view, page or folder),
        "title": f"{' '.join(map('='.join, typed.items())) or view.work} · {folder.resolve().name}",
        "work": [view.work],
        "run": view,
        "epoch": max(view.last_steps, default=0),
        "headline": view.headline,
        "reason": reason,
        "nets": view.nets(),
        "charts": curves({"": view}),
        "setups": [("", setup_of(view))],
    }


def both_page(folder: Path, reason: str = "") -> Content:
    """Return the content of the page of `engine=both`, of which raw may have left nothing yet."""
    lightning, raw = (folder / engine for engine in FOLDERS)
    if not (folder / METRICS).is_file():
        return {**run_page(lightning, reason, folder), "is_both": True}
    content = pair_page(lightning, raw, read_json(folder / COMPARISON), ["Lightning", "raw"])
    return {**content, "title": f"Lightning and raw · {folder.resolve().name}", "setups": content["setups"][:1]}


def pair_page(a: Path, b: Path, comparison: Content | None = None, names: Sequence[str] = ()) -> Content:
    """Return the content of the page of two runs. `comparison`: that of their comparison.json, if it is known."""
    views, comparison = (RunView(a), RunView(b)), comparison or compare(a, b).content()
    options: Mapping[str, Any] = comparison["configuration"]
    short = short_keys(options) if len(options) <= 2 else {}
    letters = [" ".join([ab, *(f"{key}={pair[n]}" for key, pair in short.items())]) for n, ab in enumerate("AB")]
    names = names or letters
    page = Path() if names == letters else a.parent
    left, is_identical = _parts(views[0], page), comparison["verdict"] == "identical"
    times = [(name, times_of(view, page)) for name, view in zip(names, views, strict=True)]
    return {
        **left,
        "title": f"{names[0]} against {names[1]} · {a.resolve().name}",
        "work": [*dict.fromkeys(view.work for view in views)],
        "run": views[0],
        "epoch": 0,
        "settings": [(name, view.summary) for name, view in zip(names, views, strict=True)],
        "headline": views[0].headline if is_identical else None,
        "names": names,
        "paths": [str(short_path(view.folder)) for view in views],
        "nets": views[0].nets() if is_identical else [],
        "pair": [] if is_identical else pair_rows(*views),
        "comparison": comparison,
        "charts": [difference_chart(*views), *curves(dict(zip(names, views, strict=True)))],
        "times": times,
        "setups": [(name, setup_of(view)) for name, view in zip(names, views, strict=True)],
    }


def _parts(view: RunView, page: Path) -> Content:
    """Return what is read of one run alone: time, classes and pictures."""
    names, rows = [name for name, _ in view.confusion_rows], [counts for _, counts in view.confusion_rows]
    others = [*names, *(["another"] if rows and len(rows[0]) > len(rows) else [])]
    wrong = [
        (count, names[row], other)
        for row, counts in enumerate(rows)
        for column, (other, count) in enumerate(zip(others, counts, strict=True))
        if column != row and count
    ]
    return {
        "times": [("", times_of(view, page))],
        "classes": {"names": names, "others": others, "rows": rows, "predicted": [*map(sum, zip(*rows, strict=True))]},
        "wrong": sorted(wrong, key=lambda each: -each[0])[:LARGEST_LIST],
        "pictures": view.notes.get("pictures", []),
        "split_counts": view.notes.get("classes"),
    }


def pair_rows(left: RunView, right: RunView) -> list[Content]:
    """Return a row for each result of both runs: which is better, by how much, and whether it is chance."""
    others, rows = {(row["split"], row["metric"]): row for row in right.nets()}, []
    for row in left.nets():
        other = others.get((row["split"], row["metric"]), {"last": None, "samples": None})
        if row["last"] is not None and other["last"] is not None:
            samples = row["samples"] if row["samples"] == other["samples"] else None
            judged = judgement(str(row["metric"]), [row["last"]], [other["last"]], samples)
            rows.append({**row, "a": row["last"], "b": other["last"], **judged})
    return sorted(rows, key=lambda row: row["split"] != "test")


def times_of(view: RunView, page: Path) -> Content:
    """Return the seconds of each rank by phase, in the timeline if there is one, and those of epochs."""
    noted, trace = view.notes.get("ranks", []), view.notes.get("timeline") or {}
    ranks = [{phase: seconds.get(phase, 0.0) for phase in PHASES} for seconds in trace.get("ranks", noted)]
    others: Mapping[str, float] = noted[0] if noted else {}
    path, slow = view.folder / TIMELINE, slowest(ranks)
    epochs = view.notes.get("epochs", [])  # each with the seconds of training, and of all else since the last
    return {
        "results": view.results,
        "ranks": ranks,
        "timeline": relpath(path, page) if path.is_file() else None,
        "steps": trace.get("steps"),
        "slowest": slow,
        "slow_phase": None if slow is None else slow_phase(ranks, slow),
        "others": {name: value for name, value in others.items() if name not in PHASES},
        "epochs": [[*epoch, view.epoch_samples.get(epoch[0], 0)] for epoch in epochs],
    }


def slow_phase(ranks: Sequence[Mapping[str, float]], rank: int) -> str:
    """Return the phase in which a rank loses most against the fastest one."""
    computing = [phase for phase in PHASES if phase != "communication"]
    return max(computing, key=lambda phase: ranks[rank][phase] - min(each[phase] for each in ranks))


def slowest(ranks: Sequence[Mapping[str, float]]) -> int | None:
    """Return the rank that computes longest, and for which the others wait; None if all take about the same time."""
    if len(ranks) < 2 or not any(rank["communication"] for rank in ranks):
        return None
    works = [sum(rank.values()) - rank["communication"] for rank in ranks]
    is_noticeable = max(works) - min(works) >= NOTICEABLE * max(sum(rank.values()) for rank in ranks)
    return works.index(max(works)) if is_noticeable else None
