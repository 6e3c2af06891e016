"""Assertions about two runs, by what `compare` says of their folders."""

import json
from pathlib import Path
from typing import Any

from lockstep.runs.compare import Comparison, compare
from lockstep.runs.run_files import METRICS


def require_identical(left: Path, right: Path) -> Comparison:
    comparison = compare(left, right)
    assert comparison.verdict == "identical", comparison.text()
    return comparison


def require_close(left: Path, right: Path) -> None:
    """Equal to 1e-10 in float64, at every step."""
    comparison = compare(left, right)
    assert comparison.within_tolerance, comparison.text()
    assert comparison.max_diff < 1e-10


def metrics_in(folder: Path) -> dict[str, Any]:
    """Return the results of a run."""
    metrics: dict[str, Any] = json.loads((folder / METRICS).read_text())
    return metrics


def lines(folder: Path, kind: str) -> list[Any]:
    """Return the lines of a kind in the record of a run."""
    records = map(json.loads, (folder / "record.jsonl").read_text().splitlines())
    return [line[kind] for line in records if kind in line]
