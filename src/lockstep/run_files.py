"""The files of a run's folder; docs/agreement.md has the lines of record.jsonl."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lockstep.files import save_json, save_table

METRICS = "metrics.json"
CONFIG = "config.yaml"
RECORD = "record.jsonl"
COMPARISON = "comparison.json"
CONFUSION = "confusion.csv"
EXPORTED = {"safetensors": "net.safetensors", "onnx": "net.onnx", "torch_export": "net.pt2"}
"""The file that `lockstep.export` writes, by format."""
FINGERPRINTED = ("weights", "buffers", "optimizer")  # the tensors of which the record has fingerprints
Metrics = dict[str, str | int | float]
NOT_OF_THE_NET = ("lr", "train_seconds", "samples_per_second", "total_seconds", "max_diff", "best")
"""Floats of metrics.json that do not measure the net; so are all with `_seconds` in their names."""


def net_metrics(metrics: Mapping[str, object]) -> dict[str, float]:
    """Return the losses and metrics of the net, from the content of metrics.json."""
    return {
        name: value
        for name, value in metrics.items()
        if isinstance(value, float) and name not in NOT_OF_THE_NET and "_seconds" not in name
    }


def save_metrics(folder: Path, metrics: Metrics) -> None:
    save_json(folder / METRICS, metrics)


def save_confusion(folder: Path, counts: Sequence[Sequence[int]], labels: Sequence[str]) -> None:
    """Write confusion.csv: how often each class (row) of the test split was predicted as each class (column)."""
    columns = [f"predicted {label}" for label in labels]
    columns += ["predicted another"] if counts and len(counts[0]) > len(labels) else []  # numbers that are no class
    rows = zip(labels, counts, strict=True)
    save_table(folder / CONFUSION, [{"true": label, **dict(zip(columns, row, strict=True))} for label, row in rows])


def clear_records(folder: Path, keep_record: bool) -> None:
    """Remove the results of an earlier run in the folder; `keep_record`: the run is resumed."""
    for run in (folder, folder / "lightning", folder / "raw"):
        for name in (METRICS, COMPARISON, CONFUSION, *(() if keep_record else (RECORD,))):
            (run / name).unlink(missing_ok=True)


def run_of(checkpoint: Path) -> Path:
    """Return the folder of the run that wrote a checkpoint, links resolved."""
    return checkpoint.resolve().parents[1]
