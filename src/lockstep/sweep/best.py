"""The best job of a sweep: by which metric, in which direction, and the command that runs it again."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.objectives import objective_of
from lockstep.sweep.jobs import SweepJob


@dataclass(frozen=True)
class RankingMetric:
    """The metric that jobs are ranked by: `optimized_metric` if it is set, else the monitor of best.ckpt.

    mode: min or max is better.
    is_final: it is the final value of a run, and not that of the best epoch.
    """

    name: str
    mode: str
    is_final: bool

    @property
    def label(self) -> str:
        return self.name if self.is_final else f"best {self.name}"

    def value(self, job: SweepJob) -> float:
        """Return the metric of a job, NaN if there is none."""
        value = job.results.get(self.name if self.is_final else "best")
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
        default = "max" if name == "samples_per_second" else objective_of("classification", 2).better(name)
        return RankingMetric(name, modes.get(name) or default, is_final=True)
    [(monitor, mode)] = modes.items() if len(modes) == 1 else [(None, None)]
    return RankingMetric(monitor, mode, is_final=False) if monitor and mode else None


def best_text(jobs: Sequence[SweepJob], metric: RankingMetric | None) -> list[str]:
    """Return lines about the best job with the command that runs it again; none if no job is the best."""
    best = None if metric is None else metric.best(jobs)
    if best is None or metric is None:
        return []
    words = best.config.get("command", {}).get("words")
    command = [f"  {shlex.join(['python', 'train.py', *words])}"] if words else []
    return [f"best: job {best.name}, {metric.label} {metric.value(best):.4g}", *command]
