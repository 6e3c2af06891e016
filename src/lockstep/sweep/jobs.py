"""The jobs of a sweep as they lie in their folders: results and configuration, or why there are none."""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from lockstep.compare import RecordedRun
from lockstep.run_files import METRICS, RECORD
from lockstep.strategies.registry import STRATEGIES
from lockstep.sweep import UNFINISHED

MAY_DIFFER = (
    *("name", "run_dir", "engine", "strategy", "devices", "num_nodes", "threads", "accelerator", "logger"),
    *("process_group", "checkpoint", "record", "show_shapes", "model_summary", "log_every_n_steps", "detect_nan"),
    *("resume", "optimized_metric", "command"),
)
"""What two runs may differ in and still be expected to give the same numbers."""


class SweepJob:
    """A job's folder: its results and its configuration, or why it has none."""

    def __init__(self, folder: Path, sweep: Path) -> None:
        self.name = str(folder.relative_to(sweep))
        self.results = _read_json(folder / METRICS)
        self.unfinished = _read_json(folder / UNFINISHED)
        self.config: dict[str, Any] = self.unfinished.get("config", {})
        if (folder / "config.yaml").is_file():
            self.config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))  # type: ignore[assignment]
        if self.config.get("resume"):
            self.config["ckpt_path"] = None  # from where it went on is no part of what it did
        # a job with both engines keeps the record of each; they have been compared already
        self.run = folder if (folder / RECORD).is_file() else folder / "lightning"

    @cached_property
    def record(self) -> RecordedRun:
        return RecordedRun(self.run)

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
        """Of one batch."""
        layout = STRATEGIES[self.config["strategy"]["name"]].layout(self.results["devices"])
        return float(self.config["batch_size"] / (layout.data_parallel_size * self.results["num_nodes"]))

    def has_tolerance_with(self, other: "SweepJob") -> bool:
        keys = (self.config.keys() | other.config.keys()) - set(MAY_DIFFER)
        return all(self.config.get(key) == other.config.get(key) for key in keys)


def jobs_of(sweep: Path, since: float) -> list[SweepJob]:
    """The jobs that wrote a result, or why there is none, after `since`, by number; wherever the launcher put them."""
    written = [path for name in (METRICS, UNFINISHED) for path in sweep.rglob(name) if path.stat().st_mtime >= since]
    folders = {path.parent for path in written}
    whole = [folder for folder in folders if not folders & set(folder.parents)]
    return [SweepJob(folder, sweep) for folder in sorted(whole, key=lambda folder: (len(folder.name), folder.name))]


def _read_json(path: Path) -> Mapping[str, Any]:
    values: Mapping[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return values
