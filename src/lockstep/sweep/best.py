"""What the jobs of a sweep are told apart by: a metric, in which direction it is better, and the best job."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.objectives import objective_of
from lockstep.sweep.jobs import SweepJob

DIRECTIONS = {"minimize": "min", "maximize": "max"}
"""By the words of sweepers that look for the best."""


@dataclass(frozen=True)
class Target:
    """`optimized`: the command's `optimized_metric`; else what best.ckpt is best by."""

    name: str
    mode: str
    optimized: bool

    @property
    def label(self) -> str:
        """What its value is called: a run ends with the optimized metric, and is best at some epoch."""
        return self.name if self.optimized else f"best {self.name}"

    def value(self, job: SweepJob) -> float:
        """NaN where the job has none."""
        value = job.results.get(self.name if self.optimized else "best")
        return float(value) if isinstance(value, int | float) else math.nan

    def best(self, jobs: Sequence[SweepJob]) -> SweepJob | None:
        """The first of the best; None where fewer than two have a value, or all have the same."""
        found = [(self.value(job), job) for job in jobs if not math.isnan(self.value(job))]
        if len({value for value, _ in found}) < 2:
            return None
        sign = 1 if self.mode == "min" else -1
        return min(found, key=lambda pair: sign * pair[0])[1]


def target_of(jobs: Sequence[SweepJob], direction: str | None = None) -> Target | None:
    """None where the jobs have no such metric in common.

    Args:
        direction: `minimize` or `maximize`, where the sweeper looks for the best.
    """
    finished = [job for job in jobs if job.results]
    wanted = {job.config.get("optimized_metric") for job in finished}
    if len(wanted) == 1 and (name := wanted.pop()):
        return Target(name, DIRECTIONS.get(direction or "") or _better(name, finished), optimized=True)
    monitors = {(job.results.get("monitor"), job.results.get("mode")) for job in finished}
    if len(monitors) == 1 and all(pair := monitors.pop()):
        return Target(str(pair[0]), str(pair[1]), optimized=False)
    return None


def _better(name: str, finished: Sequence[SweepJob]) -> str:
    monitored = {str(job.results.get("monitor")): str(job.results.get("mode")) for job in finished}
    if name in monitored:
        return monitored[name]
    return "max" if name == "samples_per_second" else objective_of("classification", 2).better(name)


def best_text(jobs: Sequence[SweepJob], target: Target | None) -> list[str]:
    """Lines about the best job, and the command that runs it again; none where no job is the best."""
    best = None if target is None else target.best(jobs)
    if best is None or target is None:
        return []
    words = best.config.get("command", {}).get("words")
    again = [f"  {shlex.join(['python', 'train.py', *words])}"] if words else []
    return [f"best: job {best.name}, {target.label} {target.value(best):.4g}", *again]
