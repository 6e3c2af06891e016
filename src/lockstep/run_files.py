"""The files that a run leaves in its folder, and how they are written.

record.jsonl begins with a `run` line that identifies the run. Then come `step`, `fingerprint` (of what each rank holds)
and `validation` lines, floats in full precision, and at the end a `tensor` line for every parameter and buffer. Epochs
and steps count from 1.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from lockstep.files import save_json, save_table

METRICS = "metrics.json"
CONFIG = "config.yaml"
RECORD = "record.jsonl"
COMPARISON = "comparison.json"
CONFUSION = "confusion.csv"
FILES = (METRICS, CONFIG, RECORD, COMPARISON, CONFUSION)
"""In a run's own folder, which may hold a user's files too."""
FINGERPRINTED = ("weights", "buffers", "optimizer")
"""What each rank's fingerprints in the record are of."""
Metrics = dict[str, str | int | float]
NOT_OF_THE_NET = ("lr", "train_seconds", "samples_per_second", "total_seconds", "max_diff", "best")
"""Floats of metrics.json beside what the net was measured by; so are those with `_seconds` in their names."""


def net_metrics(metrics: Mapping[str, object]) -> dict[str, float]:
    """Of what metrics.json holds, the losses and metrics of the net."""
    return {
        name: value
        for name, value in metrics.items()
        if isinstance(value, float) and name not in NOT_OF_THE_NET and "_seconds" not in name
    }


def save_metrics(folder: Path, metrics: Metrics) -> None:
    """Write metrics.json."""
    save_json(folder / METRICS, metrics)


def save_confusion(folder: Path, counts: Sequence[Sequence[int]]) -> None:
    """confusion.csv: how often each class (row) of the test split was taken for each (column)."""
    rows = [
        {"true": label, **{f"predicted {other}": count for other, count in enumerate(row)}}
        for label, row in enumerate(counts)
    ]
    save_table(folder / CONFUSION, rows)


def clear_records(folder: Path, keep_record: bool) -> None:
    """Remove what an earlier run left in the same folder, of one engine or of both. A resumed run keeps its record."""
    for part in (folder, folder / "lightning", folder / "raw"):
        for name in (METRICS, COMPARISON, CONFUSION) if keep_record else (METRICS, RECORD, COMPARISON, CONFUSION):
            (part / name).unlink(missing_ok=True)


def run_of(checkpoint: Path) -> Path:
    """The folder of the run that left a checkpoint, free of links, however the checkpoint is named.

    Where the file itself is a link: beside it, if a record lies there, else where the link leads.
    """
    near, far = checkpoint.parent.resolve().parent, checkpoint.resolve().parents[1]
    return far if os.path.lexists(far / RECORD) and not os.path.lexists(near / RECORD) else near
