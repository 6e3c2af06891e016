"""What a run leaves behind: metrics.json, record.jsonl with a line for every optimizer step, and digests.

record.jsonl begins with a `run` line, which tells this run from others. Then come `step`, `fingerprint` (of what each
rank holds) and `validation` lines, floats in full precision, and at the end a `tensor` line for every parameter and
buffer. Epochs and steps count from 1.
"""

import contextlib
import csv
import hashlib
import io
import json
import math
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

METRICS = "metrics.json"
CONFIG = "config.yaml"
RECORD = "record.jsonl"
COMPARISON = "comparison.json"
CONFUSION = "confusion.csv"
FILES = (METRICS, CONFIG, RECORD, COMPARISON, CONFUSION)
"""In a run's own folder, which may hold a user's files too."""
FINGERPRINTED = ("weights", "buffers", "optimizer")
"""What each rank takes fingerprints of."""
Metrics = dict[str, str | int | float]

UNREADABLE = (OSError, EOFError, RuntimeError, KeyError, TypeError, pickle.UnpicklingError)
"""What reading a damaged checkpoint may raise."""


def digest(state: "Mapping[str, Tensor]") -> str:
    """SHA-256 over the bytes of every parameter and buffer, in state_dict order."""
    sha = hashlib.sha256()
    for tensor in state.values():
        sha.update(tensor_bytes(tensor))
    return sha.hexdigest()


def tensor_bytes(tensor: "Tensor") -> memoryview:
    """Its numbers in logical order, however they lie in memory."""
    import torch

    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def save_metrics(folder: Path, metrics: Metrics) -> None:
    """Write metrics.json, floats in full precision; a reader sees the whole file or none."""
    save_json(folder / METRICS, metrics)


def save_json(path: Path, values: Mapping[str, Any]) -> None:
    save_text(path, json.dumps(_finite(values), indent=2) + "\n")


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Another name under which to make a file: a reader sees it whole or not at all, also where the disk is full."""
    part = part_of(path)
    try:
        yield part
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def remove_parts(folder: Path, names: Iterable[str]) -> None:
    """What `whole` began of these files in a folder and a process did not live to rename."""
    for name in names:
        part = part_of(folder / name)
        if part.is_file() and not part.is_symlink():
            part.unlink(missing_ok=True)


def part_of(path: Path) -> Path:
    """The name that a file has while it is made."""
    return path.with_name(f".{path.name}.part")


def save_text(path: Path, text: str) -> None:
    """The bytes are on the disk before the file has its name: also after a loss of power it is whole or not there."""
    with atomic_write(path) as part, part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """So that a new name, too, outlives a loss of power, where folders can be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def save_table(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """A CSV file; all rows have the keys of the first."""
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    save_text(path, file.getvalue())


def save_confusion(folder: Path, counts: Sequence[Sequence[int]]) -> None:
    """confusion.csv: how often each class (row) of the test split was taken for each (column)."""
    rows = [
        {"true": label, **{f"predicted {other}": count for other, count in enumerate(row)}}
        for label, row in enumerate(counts)
    ]
    save_table(folder / CONFUSION, rows)


def clear_records(folder: Path, keep_record: bool) -> None:
    """Remove what an earlier run left in the same folder, by one engine or by both; not the record that is gone on."""
    for part in (folder, folder / "lightning", folder / "raw"):
        for name in (METRICS, COMPARISON, CONFUSION) if keep_record else (METRICS, RECORD, COMPARISON, CONFUSION):
            (part / name).unlink(missing_ok=True)


def table(metrics: Metrics) -> str:
    """Two columns for the terminal."""
    rows = {key: f"{value:.6g}" if isinstance(value, float) else str(value) for key, value in metrics.items()}
    width = max(map(len, rows))
    return "\n".join(f"  {key:<{width}}  {value}" for key, value in rows.items())


def json_line(line: Mapping[str, Mapping[str, Any]]) -> str:
    """A line of record.jsonl."""
    text = json.dumps(line)
    if "NaN" in text or "Infinity" in text:
        return json.dumps({kind: _finite(values) for kind, values in line.items()})
    return text


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity: what is either becomes null."""
    lost = {key for key, value in values.items() if isinstance(value, float) and not math.isfinite(value)}
    return {key: None if key in lost else value for key, value in values.items()}
