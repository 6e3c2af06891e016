"""What a run leaves behind: metrics.json, record.jsonl with a line for every optimizer step, and digests.

record.jsonl begins with a `run` line, which tells this run from others. Then come `step` and `validation` lines, floats
in full precision, and at the end a `tensor` line for every parameter and buffer. Epochs and steps count from 1.
"""

import contextlib
import csv
import hashlib
import io
import json
import math
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
Metrics = dict[str, str | int | float]

UNREADABLE = (OSError, EOFError, RuntimeError, KeyError, TypeError, pickle.UnpicklingError)
"""What reading a damaged checkpoint may raise."""


def digest(state: "Mapping[str, Tensor]") -> str:
    """SHA-256 over the bytes of every parameter and buffer, in state_dict order."""
    import torch

    sha = hashlib.sha256()
    for tensor in state.values():
        sha.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def save_metrics(folder: Path, metrics: Metrics) -> None:
    """Write metrics.json, floats in full precision; a reader sees the whole file or none."""
    save_json(folder / METRICS, metrics)


def save_json(path: Path, values: Mapping[str, Any]) -> None:
    save_text(path, json.dumps(_finite(values), indent=2) + "\n")


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Another name under which to make a file: a reader sees it whole or not at all, also where the disk is full."""
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def save_text(path: Path, text: str) -> None:
    with whole(path) as part:
        part.write_text(text)


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


def begin_record(folder: Path, run: Mapping[str, Any], before: Path, lines: int) -> int:
    """A new record.jsonl: its `run` line, then, where training goes on, what the record in `before` held by then.

    Returns how many lines there are.
    """
    own = f"{_json_line({'run': run})}\n"
    source = before / RECORD
    earlier = source.read_text().splitlines(keepends=True)[1:lines] if lines and source.is_file() else []
    save_text(folder / RECORD, "".join([own, *earlier]))
    return 1 + len(earlier)


def append_record(folder: Path, kind: str, lines: Iterable[Mapping[str, Any]]) -> int:
    """Add lines of one kind to record.jsonl, all or, where the disk is full, none. Returns how many."""
    texts = [f"{_json_line({kind: line})}\n" for line in lines]
    with (folder / RECORD).open("ab", buffering=0) as record:
        whole, content = record.tell(), memoryview("".join(texts).encode())
        try:
            while content:
                content = content[record.write(content) :]
        except OSError:
            record.truncate(whole)
            raise
    return len(texts)


def table(metrics: Metrics) -> str:
    """Two columns for the terminal."""
    rows = {key: f"{value:.6g}" if isinstance(value, float) else str(value) for key, value in metrics.items()}
    width = max(map(len, rows))
    return "\n".join(f"  {key:<{width}}  {value}" for key, value in rows.items())


def _json_line(line: Mapping[str, Mapping[str, Any]]) -> str:
    text = json.dumps(line)
    if "NaN" in text or "Infinity" in text:
        return json.dumps({kind: _finite(values) for kind, values in line.items()})
    return text


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity: what is either becomes null."""
    lost = {key for key, value in values.items() if isinstance(value, float) and not math.isfinite(value)}
    return {key: None if key in lost else value for key, value in values.items()}
