"""Paths; and text, JSON and CSV files that are complete or absent, even after a kill."""

import contextlib
import csv
import errno
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

CARRIED = Path(__file__).parents[1] / "conf"
CONF = CARRIED if CARRIED.is_dir() else Path(__file__).parents[3] / "conf"
"""The folder of the configuration groups: in the package of a wheel, else at the top of the checkout."""
TIMELINE = "profiler/timeline.json.gz"  # of a run's folder


def absolute(path: Any) -> Any:
    """Return an absolute path, `~` expanded; pathlib raises if there is no such home. Other values stay."""
    return os.path.abspath(os.path.expanduser(path)) if isinstance(path, str) else path  # noqa: PTH100, PTH111


def short_path(path: Path | str) -> Path:
    """Return a path relative to the working directory, if it lies there."""
    return Path(path).relative_to(Path.cwd()) if Path(path).is_relative_to(Path.cwd()) else Path(path)


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield the temporary name under which to write a file, which is synced and renamed, or removed on an error."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if (named := disk_error(error, path)) is not error:
            raise named from error
        raise


def disk_error(error: BaseException, path: Path) -> BaseException:
    """Return an error of writing to a path; for that of torch's writer, which may say no more, an OSError."""
    if isinstance(error, OSError):
        error.filename = error.filename or str(path)
    code = getattr(error.__context__, "errno", errno.ENOSPC if "PytorchStreamWriter" in str(error) else None)
    if isinstance(error, RuntimeError) and code is not None:
        return OSError(code, os.strerror(code), str(path))
    return error


def save_text(path: Path, text: str) -> None:
    """Save a text so that it survives a loss of power."""
    with atomic_write(path) as temporary:
        temporary.write_text(text)


def sync_folder(folder: Path) -> None:
    """Sync a folder, if it can be, so that a new name in it survives a loss of power."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def save_json(path: Path, values: Mapping[str, Any]) -> None:
    """Save a JSON object, floats in full precision; NaN and infinities become null."""
    save_text(path, json.dumps(finite(values), indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object; nothing if the file is missing or damaged."""
    try:
        return {**json.loads(path.read_text())}
    except (OSError, ValueError, TypeError):
        return {}


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace NaN and infinity, which JSON does not have, by None."""
    wrong = [key for key, value in values.items() if isinstance(value, float) and not math.isfinite(value)]
    return {**values, **dict.fromkeys(wrong)}


def save_table(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Save a CSV file; all rows have the keys of the first."""
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    save_text(path, file.getvalue())
