"""The table over a sweep: a row a job, each held against the first run of the same work on one device."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from textwrap import shorten
from typing import Any

from omegaconf import OmegaConf

from lockstep.compare import RunFolder, compare_runs
from lockstep.record import METRICS, RECORD
from lockstep.refusal import Refusal
from lockstep.sweep import UNFINISHED

SAME_WORK = ("model", "data")
"""What a run has in common with the one that it is measured against, beside the batch: all of it, or each device's."""

MAY_DIFFER = (
    *("name", "run_dir", "engine", "strategy", "devices", "num_nodes", "threads", "accelerator", "logger"),
    *("process_group", "checkpoint", "show_shapes", "log_every_n_steps", "optimized_metric"),
)
"""What two runs may differ in and still owe each other the same numbers."""


FOUND = {"test_acc": "test/acc", "slope": "slope", "intercept": "intercept"}
"""What a job may have found, by the names of the table and of metrics.json."""


@dataclass(frozen=True)
class Row:
    """One job; what it has not measured is None. `loss_apart` is the largest difference of the loss at any step."""

    job: str
    engine: str
    strategy: str
    devices: int
    epoch_seconds: float | None = None
    samples_per_second: float | None = None
    speed_up: float | None = None
    efficiency: float | None = None
    test_acc: float | None = None
    slope: float | None = None
    intercept: float | None = None
    loss_apart: float | None = None
    verdict: str = ""
    reason: str = ""
    varied: Mapping[str, object] = field(default_factory=dict)
    """What else the sweep varies, by key, as this job has it."""

    @property
    def label(self) -> str:
        """What tells this run from others that have as many devices."""
        return " ".join([self.engine, self.strategy, *map(str, self.varied.values())])

    def cells(self) -> dict[str, object]:
        """The row as a table has it: what is varied beside what is chosen, before what is measured."""
        own = {column.name: getattr(self, column.name) for column in fields(self) if column.name != "varied"}
        chosen = ("job", "engine", "strategy", "devices")
        return {key: own[key] for key in chosen} | dict(self.varied) | own


class Job:
    """A job's folder: its results and its configuration, or why it has none."""

    def __init__(self, folder: Path, sweep: Path) -> None:
        self.name = str(folder.relative_to(sweep))
        self.results = _read_json(folder / METRICS)
        self.unfinished = _read_json(folder / UNFINISHED)
        self.config: dict[str, Any] = self.unfinished.get("config", {})
        if (folder / "config.yaml").is_file():
            self.config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))  # type: ignore[assignment]
        # a job with both engines keeps the record of each; they have been compared already
        self.run = folder if (folder / RECORD).is_file() else folder / "lightning"

    @cached_property
    def record(self) -> RunFolder:
        return RunFolder(self.run)

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The lines of its optimizer steps; none where it has no record."""
        return list(self.record.steps.values()) if (self.run / RECORD).is_file() else []

    @property
    def speed(self) -> float:
        return float(self.results.get("samples_per_second", 0.0))

    @property
    def devices(self) -> int:
        return int(self.results["devices"] * self.results["num_nodes"])

    @property
    def samples_a_device(self) -> float:
        """Of one batch: stages see all of it, one after the other."""
        stages = self.config["strategy"]["name"] == "model_parallel"
        return float(self.config["batch_size"] / (1 if stages else self.devices))

    def does_the_work_of(self, other: "Job") -> bool:
        return all(self.config.get(key) == other.config.get(key) for key in SAME_WORK)

    def shares_the_batch_of(self, other: "Job") -> bool:
        return bool(self.config["batch_size"] == other.config["batch_size"])

    def owes_the_numbers_of(self, other: "Job") -> bool:
        keys = (self.config.keys() | other.config.keys()) - set(MAY_DIFFER)
        return all(self.config.get(key) == other.config.get(key) for key in keys)


def jobs_of(sweep: Path, since: float) -> list[Job]:
    """The jobs that wrote a result, or why there is none, after `since`, by number; wherever the launcher put them."""
    written = [path for name in (METRICS, UNFINISHED) for path in sweep.rglob(name) if path.stat().st_mtime >= since]
    folders = {path.parent for path in written}
    whole = [folder for folder in folders if not folders & set(folder.parents)]
    return [Job(folder, sweep) for folder in sorted(whole, key=lambda folder: (len(folder.name), folder.name))]


def rows_of(jobs: Sequence[Job]) -> list[Row]:
    """The table's rows, in the order of the jobs."""
    keys = _varied([_flat(job.config) for job in jobs if job.results])
    return [
        replace(
            _row(job, _reference(job, jobs) if job.results else None),
            varied={key: _flat(job.config).get(key, "") for key in keys},
        )
        for job in jobs
    ]


def _varied(configs: Sequence[Mapping[str, object]]) -> list[str]:
    """The keys, beside those with a column of their own, that the finished jobs have in common and differ in."""
    common = set(configs[0]).intersection(*configs) if configs else set()
    own = {key for key in common if key not in MAY_DIFFER}
    return sorted(key for key in own if len({str(config[key]) for config in configs}) > 1)


def _flat(config: Mapping[str, Any]) -> dict[str, object]:
    """`{"model": {"name": "mlp"}}` → `{"model": "mlp"}`, other keys of groups as `model.hidden`."""
    flat: dict[str, object] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= {key if name == "name" else f"{key}.{name}": own for name, own in value.items()}
        else:
            flat[key] = value
    return flat


def _reference(job: Job, jobs: Sequence[Job]) -> Job | None:
    """The first job on one device that trained the same model on the same data, in the same batches.

    Where there is none, in batches of as many samples a device: a speed-up too, by more work at once.
    """
    alone = [other for other in jobs if other.results and other.devices == 1 and other.speed]
    alike = [other for other in alone if other.does_the_work_of(job)]
    same = (other for other in alike if other.shares_the_batch_of(job))
    scaled = (other for other in alike if other.samples_a_device == job.samples_a_device)
    return next(same, None) or next(scaled, None)


def _row(job: Job, reference: Job | None) -> Row:
    if not job.results:
        left = job.unfinished
        reason = f"{left['status']}: {left['reason'].strip().splitlines()[-1]}"
        wanted = _flat(left["config"])
        return Row(job.name, str(wanted["engine"]), str(wanted["strategy"]), wanted["devices"], reason=reason)  # type: ignore[arg-type]
    results = job.results
    found: dict[str, Any] = {name: results.get(key) for name, key in FOUND.items()}
    row = Row(job.name, results["engine"], results["strategy"], job.devices, **found)
    if not job.speed:
        return row
    measured: dict[str, Any] = {"epoch_seconds": _epoch_samples(job) / job.speed, "samples_per_second": job.speed}
    if reference is not None:
        speed_up = job.speed / reference.speed
        measured |= {"speed_up": speed_up, "efficiency": speed_up / job.devices}
        measured |= _compared(job, reference)
    return replace(row, **measured)


def _epoch_samples(job: Job) -> int:
    return sum(line["samples"] for line in job.steps if line["epoch"] == job.results["epochs"])


def _compared(job: Job, reference: Job) -> dict[str, Any]:
    if job.results.get("as_owed") is False:
        return {"verdict": "engines apart"}
    if job is reference:
        return {"verdict": "reference", "loss_apart": 0.0}
    if not job.shares_the_batch_of(reference):
        return {"verdict": "another batch"}
    try:
        comparison = compare_runs(reference.record, job.record)
    except Refusal:
        return {}
    verdict = comparison.verdict if job.owes_the_numbers_of(reference) else "another plan"
    loss = comparison.quantities.get("loss")
    return {"verdict": verdict, "loss_apart": loss.difference if loss else None}


REASON_WIDTH = 72
"""Characters of a reason in the terminal; sweep.csv has all of them."""

HEADINGS = {
    "epoch_seconds": "s/epoch",
    "samples_per_second": "samples/s",
    "speed_up": "speed-up",
    "test_acc": "test acc",
    "loss_apart": "loss apart",
}
FORMATS = {
    "epoch_seconds": ".3f",
    "samples_per_second": ".0f",
    "speed_up": ".2f",
    "efficiency": ".2f",
    "test_acc": ".4f",
    "loss_apart": ".1e",
    "slope": ".5f",
    "intercept": ".5f",
}


def text(rows: Sequence[Row]) -> str:
    """The table for the terminal; a column that is empty in all rows is left out."""
    table = [row.cells() for row in rows]
    columns = [name for name in table[0] if any(cells[name] not in (None, "") for cells in table)]
    lines = [[HEADINGS.get(name, name) for name in columns]]
    lines += [[_shown(name, cells[name]) for name in columns] for cells in table]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _shown(name: str, value: object) -> str:
    if value is None:
        return "–"
    return shorten(format(value, FORMATS.get(name, "")), REASON_WIDTH, placeholder=" …")


def _read_json(path: Path) -> Mapping[str, Any]:
    values: Mapping[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return values
