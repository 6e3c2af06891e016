"""The finished, refused and failed jobs of a sweep, read from their folders."""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from lockstep.compare import RecordedRun
from lockstep.run_files import CONFIG, METRICS, RECORD
from lockstep.schemas.keys import flatten
from lockstep.sweep.outcome import FAILURE


class SweepJob:
    """A job's folder. `results` is empty if it did not finish, `failure` if it did; `options` by key as typed."""

    def __init__(self, folder: Path, sweep: Path) -> None:
        self.name = str(folder.relative_to(sweep))
        self.results = _read_json(folder / METRICS)
        self.failure = _read_json(folder / FAILURE)
        self.config: dict[str, Any] = self.failure.get("config", {})
        if (folder / CONFIG).is_file():
            self.config = OmegaConf.to_container(OmegaConf.load(folder / CONFIG))  # type: ignore[assignment]
        if self.config.get("resume"):
            self.config["ckpt_path"] = None  # jobs differ in it whatever they do
        self.options = flatten(self.config)
        self.engine, self.strategy = str(self.options.get("engine")), str(self.options.get("strategy"))
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
    def speed(self) -> float:
        """Samples per second; 0 if it did not train."""
        return float(self.results.get("samples_per_second", 0.0))

    @property
    def devices(self) -> int:
        """Devices of all machines; of a job that did not finish, whatever was typed."""
        devices: int = self.config["devices"]
        return devices * int(self.config["num_nodes"]) if self.results else devices


def jobs_of(sweep: Path, since: float) -> list[SweepJob]:
    """Return the jobs that have written an outcome after `since` (in seconds, as time.time()), by number."""
    paths = [path for name in (METRICS, FAILURE) for path in sweep.rglob(name) if path.stat().st_mtime >= since]
    folders = {path.parent for path in paths}
    outermost = [folder for folder in folders if not folders & set(folder.parents)]
    return [SweepJob(folder, sweep) for folder in sorted(outermost, key=lambda path: (len(path.name), path.name))]


def _read_json(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return values
