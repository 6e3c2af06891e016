"""Curves as a table, metrics.csv: a row for each call, a column for each name."""

import csv
from collections.abc import Mapping
from pathlib import Path

from lockstep.plan import Plan

COLUMNS = ("epoch", "lr", "samples_per_second", "step", "train/loss")
"""The first columns; others are added when they are logged."""


def version(resume: bool, steps: int) -> str:
    """Return the subfolder of a table: one for each resume in the run's folder."""
    return f"from_step_{steps + 1}" if resume and steps else ""


class CSVWriter:
    """Writes the table, by the methods of Lightning's Logger."""

    def __init__(self, plan: Plan, steps: int) -> None:
        self.path = Path(plan.run_dir) / "csv" / version(plan.resume, steps) / "metrics.csv"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._open([*COLUMNS], [])

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        if new := sorted(metrics.keys() - set(self.writer.fieldnames)):
            self.file.close()
            with self.path.open(newline="") as file:
                rows = list(csv.DictReader(file))
            self._open([*self.writer.fieldnames, *new], rows)
        self.writer.writerow({**metrics, "step": step})
        self.file.flush()

    def log_hyperparams(self, params: Mapping[str, object]) -> None:
        """No-op: they are in config.yaml."""

    def save(self) -> None:
        """No-op: each row is flushed."""

    def finalize(self, status: str) -> None:
        self.file.close()

    def _open(self, columns: list[str], rows: list[dict[str, str]]) -> None:
        self.file = self.path.open("w", newline="")
        self.writer = csv.DictWriter(self.file, columns)
        self.writer.writeheader()
        self.writer.writerows(rows)
