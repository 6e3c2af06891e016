"""The jobs of a sweep, read from their folders, the best of them, and the table of all.

In its rows each job is compared with the first one of the same work on one device.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isnan, nan
from pathlib import Path
from typing import Any

from lockstep.base.config_error import is_number, typed_command
from lockstep.plan.schemas.groups import MONITORING, WORLD, better, is_below, leaves
from lockstep.runs.compare import RecordedRun, compare
from lockstep.runs.run_files import METRICS, RECORD, net_metrics, read_config

FAILURE = "failure.json"  # of a job that was refused or failed, with the reason
LAYOUT = WORLD[:3]
PLACE = (*WORLD, *MONITORING, "tags", "batch_size_per_device")


class SweepJob:
    """A job's folder. `results` is empty if it did not finish, `failure` if it did; `words` are its overrides."""

    def __init__(self, folder: Path, sweep: Path) -> None:
        self.name = str(folder.relative_to(sweep))
        self.results, self.failure = (
            json.loads(path.read_text()) if path.is_file() else {} for path in (folder / METRICS, folder / FAILURE)
        )
        typed: tuple[dict[str, Any], list[str], list[str]] = (
            (self.failure["config"], self.failure["words"], []) if self.failure else read_config(folder)
        )
        self.config, self.words, self.swept = typed
        self.options = dict(leaves(self.config, of_lists=False))
        self.engine, self.strategy = str(self.options.get("engine")), str(self.options.get("strategy"))
        self.speed = float(self.results.get("samples_per_second", 0.0))  # 0 if it did not train
        self.devices: Any = self.config["devices"]  # of a job that did not finish whatever was typed
        if self.results:
            self.devices *= int(self.config["num_nodes"])
        # a job with engine=both has a record of each engine, already compared
        self.run = folder / "lightning" if (folder / "lightning" / RECORD).is_file() else folder

    @cached_property
    def record(self) -> RecordedRun:
        return RecordedRun(self.run)

    @property
    def work(self) -> dict[str, Any]:
        """Return the options but those of where and how it runs, which change no number beyond rounding."""
        return {key: value for key, value in self.options.items() if not is_below(key, PLACE)}

    def option(self, key: str) -> Any:
        """Return a number, or what was typed; otherwise the value of the configuration."""
        value = self.options.get(key, "")
        typed = (word.lstrip("+").partition("=") for word in self.words)
        return value if is_number(value) else {name: text for name, _, text in typed}.get(key, value)


def jobs_of(sweep: Path, since: float) -> list[SweepJob]:
    """Return the jobs that have written an outcome after `since` (in seconds, as time.time()), by number."""
    paths = [path for name in (METRICS, FAILURE) for path in sweep.rglob(name) if path.stat().st_mtime >= since]
    folders = {path.parent for path in paths}
    outermost = [folder for folder in folders if not folders & set(folder.parents)]
    return [SweepJob(folder, sweep) for folder in sorted(outermost, key=lambda path: (len(path.name), path.name))]


@dataclass(frozen=True)
class RankingMetric:
    """The metric that ranks jobs: `optimized_metric`, else the monitor of best.ckpt; `key` is that of metrics.json."""

    key: str
    label: str
    mode: str

    def value(self, job: SweepJob) -> float:
        """Return the metric of a job, NaN if there is none."""
        value = job.results.get(self.key)
        return float(value) if isinstance(value, int | float) else nan

    def best(self, jobs: Sequence[SweepJob]) -> SweepJob | None:
        """Return the first of the best jobs, or None if all have the same value."""
        values = [(self.value(job), job) for job in jobs if not isnan(self.value(job))]
        if len({value for value, _ in values}) < 2:
            return None
        return (min if self.mode == "min" else max)(values, key=lambda pair: pair[0])[1]


def ranking_metric(jobs: Sequence[SweepJob]) -> RankingMetric | None:
    """Return the metric that all finished jobs have in common, or None."""
    finished = [job for job in jobs if job.results]
    modes = {job.results.get("monitor"): job.results.get("mode") for job in finished}
    optimized = {job.config.get("optimized_metric") for job in finished}
    if len(optimized) == 1 and (name := optimized.pop()):
        return RankingMetric(name, name, modes.get(name) or better(name))
    [(monitor, mode)] = modes.items() if len(modes) == 1 else [(None, None)]
    return RankingMetric("best", f"best {monitor}", mode) if monitor and mode else None


def best_text(jobs: Sequence[SweepJob], metric: RankingMetric | None) -> list[str]:
    """Return lines about the best job with the command that runs it again; none if no job is the best."""
    best = None if metric is None else metric.best(jobs)
    if best is None or metric is None:
        return []
    heading = f"best: job {best.name}, {metric.label} {metric.value(best):.4g}"
    program = typed_command() if Path("train.py").is_file() else "lockstep"
    return [heading, f"  {program} {shlex.join(best.words)}"]


@dataclass(frozen=True)
class SweepRow:
    """A job: its columns of sweep.csv (None: not measured), and what the picture needs.

    varied: the options that the sweep varies, beside engine, strategy and devices. ranked: the column of the score.
    """

    cells: Mapping[str, Any]
    varied: Mapping[str, Any]
    score: float = nan
    ranked: str = ""


def rows_of(jobs: Sequence[SweepJob], metric: RankingMetric | None = None) -> list[SweepRow]:
    """Return the table's rows in the order of the jobs, with a speed-up if engine, strategy or devices vary."""
    finished = [job for job in jobs if job.results]
    swept = {key for job in finished for key in job.swept} - {*LAYOUT}
    keys = sorted(key for key in swept if len({str(job.option(key)) for job in jobs}) > 1)
    names = dict.fromkeys(name for job in jobs for name in net_metrics(job.results))
    best = None if metric is None else metric.best(jobs)
    has_speed_up = len({(job.engine, job.strategy, job.devices) for job in jobs}) > 1
    rows = []
    for job in jobs:
        score = nan if metric is None else metric.value(job)
        varied = {key: job.option(key) for key in keys}
        ranked = {} if metric is None else {metric.label.replace("/", "_").replace(" ", "_"): score}
        cells = {
            "job": job.name,
            "best": "*" if job is best else "",
            "engine": job.engine,
            "strategy": job.strategy,
            "devices": job.devices,
            **varied,
            **dict.fromkeys(("samples_per_second", "speed_up", "efficiency")),
            **(ranked if job.results else dict.fromkeys(ranked)),
            **{name.replace("/", "_"): job.results.get(name) for name in names},
            **{"max_loss_diff": None, "verdict": "", "reason": ""},
            **_measured(job, _reference(job, jobs) if job.results else None, has_speed_up),
        }
        rows.append(SweepRow(cells, varied, score, *ranked))
    return rows


def _reference(job: SweepJob, jobs: Sequence[SweepJob]) -> SweepJob | None:
    """Return the first job that trained on one device with the same options, but those of where it runs."""
    alone = (other for other in jobs if other.results and other.devices == 1 and other.speed)
    return next((other for other in alone if other.work == job.work), None)


def _measured(job: SweepJob, reference: SweepJob | None, has_speed_up: bool) -> dict[str, Any]:
    """Return the columns that a job has measured: none if it did not train, the reason if it did not finish."""
    if not job.results:
        status, lines = job.failure["status"], job.failure["reason"].strip().splitlines()
        line = lines[-2:][0] if status == "refused" else lines[-1]  # what to write stands behind a traceback
        return {"reason": f"{status}: {line}"}
    if not job.speed:
        return {}
    measured: dict[str, Any] = {"samples_per_second": job.speed}
    if reference is not None and has_speed_up:
        comparison, speed_up = compare(reference.run, job.run), job.speed / reference.speed
        measured |= {"speed_up": speed_up, "efficiency": speed_up / job.devices}
        measured |= {"max_loss_diff": comparison.quantities["loss"].difference}
        measured |= {"verdict": "reference" if job is reference else comparison.verdict}
    differ = job.results.get("within_tolerance") is False
    return measured | ({"verdict": "engines differ"} if differ else {})
