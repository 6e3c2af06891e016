"""The rows of the table over a sweep: one a job, each compared with the first run of the same work on one device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from lockstep.compare import compare_runs
from lockstep.config_error import ConfigError
from lockstep.run_files import net_metrics
from lockstep.schemas.keys import flatten
from lockstep.sweep.best import Target
from lockstep.sweep.jobs import MAY_DIFFER, SweepJob


@dataclass(frozen=True)
class SweepRow:
    """One job; what it has not measured is None. `max_loss_diff` is the largest difference of the loss at any step."""

    job: str
    engine: str
    strategy: str
    devices: int
    epoch_seconds: float | None = None
    samples_per_second: float | None = None
    speed_up: float | None = None
    efficiency: float | None = None
    speeds: tuple[float, float] | None = None
    """Samples per second of the slowest and of the fastest epoch, where enough of them tell."""
    found: Mapping[str, float | None] = field(default_factory=dict)
    """What the jobs found, `test_acc` and the like, and what the best is chosen by."""
    target: float | None = None
    best: bool = False
    max_loss_diff: float | None = None
    verdict: str = ""
    reason: str = ""
    varied: Mapping[str, Any] = field(default_factory=dict)
    """What else the sweep varies, by key, as this job has it."""

    def cells(self) -> dict[str, object]:
        """The row as a table has it: what is varied beside what is chosen, before what is measured."""
        own: dict[str, object] = {}
        for column in fields(self):
            value = getattr(self, column.name)
            own |= value if column.name == "found" else {} if column.name in NO_COLUMN else {column.name: value}
        own["best"] = "*" if self.best else ""
        return {key: own[key] for key in CHOSEN} | dict(self.varied) | own


CHOSEN = ("job", "best", "engine", "strategy", "devices")
NO_COLUMN = ("varied", "speeds", "target")


def rows_of(jobs: Sequence[SweepJob], target: Target | None = None) -> list[SweepRow]:
    """The table's rows, in the order of the jobs; with a speed-up where engine, strategy or devices vary."""
    configs = [flatten(job.config) for job in jobs]
    keys = _varied([config for job, config in zip(jobs, configs, strict=True) if job.results])
    names = {name: None for job in jobs for name in net_metrics(job.results)}
    best = None if target is None else target.best(jobs)
    rows = []
    for job, config in zip(jobs, configs, strict=True):
        found = {name.replace("/", "_"): job.results.get(name) for name in names}
        value = target.value(job) if target is not None and job.results else None
        if target is not None:
            found = {target.label.replace("/", "_").replace(" ", "_"): value} | found
        row = _row(job, _reference(job, jobs) if job.results else None)
        varied = {key: config.get(key, "") for key in keys}
        rows.append(replace(row, varied=varied, found=found, target=value, best=job is best))
    return rows if worlds_differ(rows) else [replace(row, speed_up=None, efficiency=None) for row in rows]


def worlds_differ(rows: Sequence[SweepRow]) -> bool:
    """Whether engine, strategy or devices vary: where they do not, one job is faster than another by chance."""
    return len({(row.engine, row.strategy, row.devices) for row in rows}) > 1


def _varied(configs: Sequence[Mapping[str, object]]) -> list[str]:
    """The keys, beside those with a column of their own, that the finished jobs have in common and differ in."""
    common = set(configs[0]).intersection(*configs) if configs else set()
    own = {key for key in common if key not in MAY_DIFFER and not key.startswith("command.")}
    return sorted(key for key in own if len({str(config[key]) for config in configs}) > 1)


def _reference(job: SweepJob, jobs: Sequence[SweepJob]) -> SweepJob | None:
    """The first job on one device that trained the same model on the same data, in the same batches.

    Where there is none, in batches of as many samples a device: a speed-up too, by more work at once.
    """
    alone = [other for other in jobs if other.results and other.devices == 1 and other.speed]
    alike = [other for other in alone if all(other.config[key] == job.config[key] for key in ("model", "data"))]
    same = (other for other in alike if other.config["batch_size"] == job.config["batch_size"])
    scaled = (other for other in alike if other.samples_a_device == job.samples_a_device)
    return next(same, None) or next(scaled, None)


def _row(job: SweepJob, reference: SweepJob | None) -> SweepRow:
    if not job.results:
        left = job.unfinished
        reason = f"{left['status']}: {left['reason'].strip().splitlines()[-1]}"
        wanted = flatten(left["config"])
        return SweepRow(job.name, str(wanted["engine"]), str(wanted["strategy"]), wanted["devices"], reason=reason)
    results = job.results
    row = SweepRow(job.name, results["engine"], results["strategy"], job.devices)
    if not job.speed:
        return row
    samples = sum(line["samples"] for line in job.steps if line["epoch"] == results["epochs"])
    measured: dict[str, Any] = {"epoch_seconds": samples / job.speed, "samples_per_second": job.speed}
    if results.get("epoch_seconds_min"):
        measured["speeds"] = samples / results["epoch_seconds_max"], samples / results["epoch_seconds_min"]
    if reference is not None:
        speed_up = job.speed / reference.speed
        measured |= {"speed_up": speed_up, "efficiency": speed_up / job.devices}
        measured |= _compared(job, reference)
    return replace(row, **measured)


def _compared(job: SweepJob, reference: SweepJob) -> dict[str, Any]:
    if job.results.get("within_tolerance") is False:
        return {"verdict": "engines differ"}
    if job is reference:
        return {"verdict": "reference", "max_loss_diff": 0.0}
    if job.config["batch_size"] != reference.config["batch_size"]:
        return {"verdict": "another batch"}
    try:
        comparison = compare_runs(reference.record, job.record)
    except ConfigError:
        return {}
    verdict = comparison.verdict if job.has_tolerance_with(reference) else "another plan"
    loss = comparison.quantities.get("loss")
    return {"verdict": verdict, "max_loss_diff": loss.difference if loss else None}
