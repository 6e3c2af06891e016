"""Several runs side by side: the jobs of a sweep, or folders that were named."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from statistics import mean
from typing import Any

from lockstep.base.config_error import shorten
from lockstep.base.text_table import short_text
from lockstep.plan.schemas.groups import short_keys
from lockstep.runs.compare.recorded_run import RecordedRun, mean_loss
from lockstep.runs.report.chance import judgement
from lockstep.runs.report.curves import budget, chart, thinned
from lockstep.runs.report.run_view import RunView, setup_of
from lockstep.runs.sweep.jobs import LAYOUT, SweepJob, SweepRow, ranking_metric, rows_of

MAX_LABEL, MAX_CURVES = 60, 24
Options = Mapping[str, Any]


def jobs_page(
    folder: Path, jobs: Sequence[SweepJob], noun: str = "jobs", rows: Sequence[SweepRow] | None = None
) -> dict[str, Any]:
    """Return the content of the page: the best of the jobs and by how much, the table, charts, and what failed.

    rows: of the jobs, if they are known: each compares a job with another.
    """
    metric = ranking_metric(jobs)
    rows, ranked = rows or rows_of(jobs, metric), metric.label if metric else None
    options = [*map(short_keys, _varying(rows))]
    names = [label(each) for each in options]
    best = None if metric is None else metric.best(jobs)
    place = next((place for place, job in enumerate(jobs) if job is best), None)
    columns, finished = _columns(rows), [not row.cells["reason"] for row in rows]
    headings = dict(zip(rows[0].varied, short_keys(rows[0].varied), strict=True))
    headings |= {rows[0].ranked: str(ranked)}
    fastest = max(rows, key=lambda row: row.cells["speed_up"] or 0)
    sign = 1 if metric and metric.mode == "min" else -1
    order = sorted(range(len(rows)), key=lambda n: (isnan(rows[n].score), sign * rows[n].score))
    curves = [n for n in order if jobs[n].results and jobs[n].record.steps][:MAX_CURVES]
    return {
        "title": f"{noun} · {folder.resolve().name}",
        "kind": noun,
        "work": [*dict.fromkeys(f"{job.results['model']} on {job.results['data']}" for job in jobs if job.results)],
        "n_finished": sum(finished),
        "best": None if place is None else {"label": names[place], "score": rows[place].score},
        "metric": ranked,
        "fastest": {"label": names[rows.index(fastest)], **fastest.cells}
        if (fastest.cells["speed_up"] or 0) > 1
        else None,
        "chance": "" if place is None else _second_best(jobs, rows, options),
        "columns": [headings.get(name, name.replace("_", " ")) for name in columns],
        "rows": [[row.cells[name] for name in columns] for row in rows],
        "failed": [(row.cells["job"], name, row.cells["reason"]) for row, name in zip(rows, names, strict=True)],
        "jobs": {
            "metric": ranked,
            "mode": metric and metric.mode,
            "rows": [
                {"job": row.cells["job"], "options": each, "score": None if isnan(row.score) else row.score}
                | {name: row.cells[name] for name in ("devices", "speed_up", "efficiency")}
                for row, each, is_shown in zip(rows, options, finished, strict=True)
                if is_shown
            ],
        },
        "charts": _curves({f"{jobs[n].name}: {names[n]}": jobs[n].record for n in curves}, ranked),
        "setups": [] if best is None else [("the best job", setup_of(RunView(best.run)))],
    }


def label(options: Options, without: str = "") -> str:
    """Return `devices=2 lr=0.01`."""
    return shorten(" ".join(f"{key}={short_text(options[key])}" for key in options if key != without), MAX_LABEL)


def _varying(rows: Sequence[SweepRow]) -> list[Options]:
    """Return, for each row, the options that vary among all."""
    options = [{**{name: row.cells[name] for name in LAYOUT}, **row.varied} for row in rows]
    varying = [key for key in options[0] if len({str(each[key]) for each in options}) > 1]
    return [{key: each[key] for key in varying} for each in options]


def _columns(rows: Sequence[SweepRow]) -> list[str]:
    """Return the columns with a value, what varied first; without those of the training split, and one of reasons."""
    filled = [name for name in rows[0].cells if any(row.cells[name] not in (None, "") for row in rows)]
    varied = [name for name in (*rows[0].varied, *LAYOUT) if len({str(row.cells[name]) for row in rows}) > 1]
    first = [name for name in ("job", "best", *varied, rows[0].ranked) if name in filled]
    return first + [name for name in filled if name not in (*first, *LAYOUT, "reason") and name[:6] != "train_"]


def _second_best(jobs: Sequence[SweepJob], rows: Sequence[SweepRow], options: Sequence[Options]) -> str:
    """Return by how much the best setting, over its seeds, is better than the next one, and whether it is chance."""
    metric = ranking_metric(jobs)
    settings: dict[str, list[float]] = defaultdict(list)
    for row, each in zip(rows, options, strict=True):
        if not isnan(row.score):
            settings[label(each, without="seed")].append(row.score)
    if metric is None or len(settings) < 2:
        return ""
    first, second, *_ = sorted(settings, key=lambda name: mean(settings[name]), reverse=metric.mode == "max")
    name, run = metric.label.removeprefix("best "), next(job.run for job in jobs if job.results)
    samples = RunView(run).samples.get(name.partition("/")[0])
    judged = judgement(name, settings[second], settings[first], samples)
    return f"{first} against the next one, {second}: {judged['difference']:+.3g}; {judged['chance']}."


def _curves(runs: Mapping[str, RecordedRun], metric: str | None) -> list[dict[str, Any]]:
    """Return the loss of each job, and the metric that ranks them or else one of validation."""
    wanted = [str(metric).removeprefix("best "), "val/loss", "val_loss"]
    logged = {name for run in runs.values() for _, line in run.validations for name in line}
    shown, most = next((name for name in wanted if name in logged), ""), budget(2 * len(runs))
    losses, validated = {}, {}
    for job, run in runs.items():
        losses[job] = thinned([(line["step"], mean_loss(line)) for line in run.steps.values()], most)
        validated[job] = thinned([(step, line[shown]) for step, line in run.validations if shown in line], most)
    note = f"Of the {MAX_CURVES} best." if len(runs) == MAX_CURVES else ""
    charts = chart("training loss", "step", losses, note=note), chart(shown, "step", validated, note=note)
    return [each for each in charts if each["lines"]]
