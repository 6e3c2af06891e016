"""The jobs of a sweep, read from their folders, and the best of them."""

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lockstep.compare import RecordedRun
from lockstep.config_error import is_number
from lockstep.run_files import METRICS, RECORD, read_config
from lockstep.schemas.groups import better, flatten
from lockstep.sweep.outcome import FAILURE


class SweepJob:
    """A job's folder. `results` is empty if it did not finish, `failure` if it did; `words` are its overrides."""

    def __init__(self, folder: Path, sweep: Path) -> None:
        self.name = str(folder.relative_to(sweep))
        self.results, self.failure = (
            json.loads(path.read_text()) if path.is_file() else {} for path in (folder / METRICS, folder / FAILURE)
        )
        self.words: list[str]
        self.swept: list[str]
        if self.failure:
            self.config, self.words, self.swept = self.failure["config"], self.failure["words"], []
        else:
            self.config, self.words, self.swept = read_config(folder)
        self.options = flatten(self.config)
        self.engine, self.strategy = str(self.options.get("engine")), str(self.options.get("strategy"))
        self.speed = float(self.results.get("samples_per_second", 0.0))  # 0 if it did not train
        self.devices: Any = self.config["devices"]  # of a job that did not finish whatever was typed
        if self.results:
            self.devices *= int(self.config["num_nodes"])
        loggers = self.config.get("logger") if self.results else None
        self.has_tensorboard = "tensorboard" in (loggers or ())
        # a job with engine=both has a record of each engine, already compared
        self.run = folder if (folder / RECORD).is_file() else folder / "lightning"

    @cached_property
    def record(self) -> RecordedRun:
        return RecordedRun(self.run)

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The record's lines of optimizer steps; empty without a record."""
        return list(self.record.steps.values()) if (self.run / RECORD).is_file() else []

    @property
    def validations(self) -> list[tuple[float, dict[str, Any]]]:
        """The record's lines of validations, each with the optimizer step that it followed."""
        last_steps: dict[int, float] = dict(self.record.steps.keys())
        lines = self.record.lines["validation"].items()
        return [(line.get("after_step") or last_steps.get(epoch, 0), line) for (epoch, _), line in lines]

    @property
    def epoch_samples(self) -> int:
        return sum(line["samples"] for line in self.steps if line["epoch"] == self.results["epochs"])

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
    """The metric that jobs are ranked by: `optimized_metric` if it is set, else the monitor of best.ckpt.

    key: in metrics.json. label: in tables. mode: min or max is better.
    """

    key: str
    label: str
    mode: str

    def value(self, job: SweepJob) -> float:
        """Return the metric of a job, NaN if there is none."""
        value = job.results.get(self.key)
        return float(value) if isinstance(value, int | float) else math.nan

    def best(self, jobs: Sequence[SweepJob]) -> SweepJob | None:
        """Return the first of the best jobs, or None if all have the same value."""
        values = [(self.value(job), job) for job in jobs if not math.isnan(self.value(job))]
        if len({value for value, _ in values}) < 2:
            return None
        return (min if self.mode == "min" else max)(values, key=lambda pair: pair[0])[1]


def ranking_metric(jobs: Sequence[SweepJob]) -> RankingMetric | None:
    """Return the metric that all finished jobs have in common, or None."""
    finished = [job for job in jobs if job.results]
    modes = {job.results.get("monitor"): job.results.get("mode") for job in finished}
    optimized = {job.config.get("optimized_metric") for job in finished}
    if len(optimized) == 1 and (name := optimized.pop()):
        default = "max" if name == "samples_per_second" else better(name)
        return RankingMetric(name, name, modes.get(name) or default)
    [(monitor, mode)] = modes.items() if len(modes) == 1 else [(None, None)]
    return RankingMetric("best", f"best {monitor}", mode) if monitor and mode else None


def best_text(jobs: Sequence[SweepJob], metric: RankingMetric | None) -> list[str]:
    """Return lines about the best job with the command that runs it again; none if no job is the best."""
    best = None if metric is None else metric.best(jobs)
    if best is None or metric is None:
        return []
    command = shlex.join(["python", "train.py", *best.words])
    return [f"best: job {best.name}, {metric.label} {metric.value(best):.4g}", f"  {command}"]
