"""The rows of a sweep's table: one a job, each compared with the first run of the same work on one device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from operator import itemgetter
from typing import Any

from lockstep.compare import compare_runs
from lockstep.config_error import ConfigError
from lockstep.run_files import net_metrics
from lockstep.sweep.jobs import RankingMetric, SweepJob

WORLD = ("engine", "strategy", "devices")


@dataclass(frozen=True)
class SweepRow:
    """One job: its columns of sweep.csv (None: not measured), and what the picture needs.

    varied: the options that the sweep varies, beside engine, strategy and devices.
    speeds: samples per second of the slowest and the fastest epoch, if there are epochs enough.
    """

    cells: Mapping[str, Any]
    varied: Mapping[str, Any]
    score: float = nan
    speeds: tuple[float, ...] = ()
    steps: Sequence[Mapping[str, Any]] = ()
    validations: Sequence[tuple[float, Mapping[str, Any]]] = ()


def rows_of(jobs: Sequence[SweepJob], metric: RankingMetric | None = None) -> list[SweepRow]:
    """Return the table's rows in the order of the jobs, with a speed-up if engine, strategy or devices vary."""
    finished = [job for job in jobs if job.results]
    swept = {key for job in finished for key in job.swept} - {*WORLD}
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
            **dict.fromkeys(("epoch_seconds", "samples_per_second", "speed_up", "efficiency")),
            **(ranked if job.results else dict.fromkeys(ranked)),
            **{name.replace("/", "_"): job.results.get(name) for name in names},
            **{"max_loss_diff": None, "verdict": "", "reason": ""},
            **_measured(job, _reference(job, jobs) if job.results else None, has_speed_up),
        }
        seconds = (job.results.get(f"epoch_seconds_{name}") for name in ("max", "min"))
        speeds = tuple(job.epoch_samples / value for value in seconds if value)
        steps = job.steps if job.results else []
        rows.append(SweepRow(cells, varied, score, speeds, steps, job.validations if steps else []))
    return rows


def _reference(job: SweepJob, jobs: Sequence[SweepJob]) -> SweepJob | None:
    """Return the first job that trained on one device with the same model, data and batch size."""
    work = itemgetter("model", "data", "batch_size")
    alone = (other for other in jobs if other.results and other.devices == 1 and other.speed)
    return next((other for other in alone if work(other.config) == work(job.config)), None)


def _measured(job: SweepJob, reference: SweepJob | None, has_speed_up: bool) -> dict[str, Any]:
    """Return the columns that a job has measured: none if it did not train, the reason if it did not finish."""
    if not job.results:
        status, lines = job.failure["status"], job.failure["reason"].strip().splitlines()
        line = lines[-2:][0] if status == "refused" else lines[-1]  # what to write stands behind a traceback
        return {"reason": f"{status}: {line}"}
    if not job.speed:
        return {}
    measured: dict[str, Any] = {"epoch_seconds": job.epoch_samples / job.speed, "samples_per_second": job.speed}
    if reference is None or not has_speed_up:
        return measured | _engines(job)
    speed_up = job.speed / reference.speed
    return {**measured, "speed_up": speed_up, "efficiency": speed_up / job.devices, **_compared(job, reference)}


def _engines(job: SweepJob) -> dict[str, Any]:
    return {"verdict": "engines differ"} if job.results.get("within_tolerance") is False else {}


def _compared(job: SweepJob, reference: SweepJob) -> dict[str, Any]:
    if differ := _engines(job):
        return differ
    if job is reference:
        return {"verdict": "reference", "max_loss_diff": 0.0}
    try:
        comparison = compare_runs(reference.record, job.record)
    except ConfigError:
        return {}
    loss, configuration = (comparison.quantities.get(name) for name in ("loss", "configuration"))
    verdict = "another plan" if configuration and configuration.first else comparison.verdict
    return {"verdict": verdict, "max_loss_diff": loss.difference if loss else None}
