"""Files that are there whole or not at all: text, JSON and CSV."""

import contextlib
import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def is_utf8(path: Path | str) -> bool:
    """Whether a path is UTF-8: on Linux it may be any bytes, which Python keeps as surrogates."""
    return all(not 0xD800 <= ord(letter) < 0xE000 for letter in str(path))


def absolute(path: Any) -> Any:
    """An absolute path, `~` expanded; pathlib's own raises where there is no such home."""
    return os.path.abspath(os.path.expanduser(path)) if isinstance(path, str) else path  # noqa: PTH100, PTH111


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """The temporary name under which to write a file. It is renamed when it is complete, and removed on an error."""
    part = part_of(path)
    try:
        yield part
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def remove_parts(folder: Path, names: Iterable[str]) -> None:
    """Remove what `atomic_write` left of these files in a folder where a process was killed."""
    for name in names:
        part = part_of(folder / name)
        if part.is_file() and not part.is_symlink():
            part.unlink(missing_ok=True)


def part_of(path: Path) -> Path:
    """The temporary name of a file."""
    return path.with_name(f".{path.name}.part")


def save_text(path: Path, text: str) -> None:
    """The bytes are synced before the file is renamed: after a loss of power, too, it is whole or not there."""
    with atomic_write(path) as part, part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that a new name in it survives a loss of power; nothing where folders cannot be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def save_json(path: Path, values: Mapping[str, Any]) -> None:
    """A JSON object, floats in full precision; NaN and infinities become null."""
    save_text(path, json.dumps(finite(values), indent=2) + "\n")


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has neither NaN nor infinity: each becomes null."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in values.items()
    }


def save_table(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """A CSV file; all rows have the keys of the first."""
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    save_text(path, file.getvalue())
