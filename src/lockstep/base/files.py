"""Paths; and text, JSON and CSV files that are complete or absent, even after a kill."""

import contextlib
import csv
import errno
import io
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

CARRIED = Path(__file__).parents[1] / "conf"
CONF = CARRIED if CARRIED.is_dir() else Path(__file__).parents[3] / "conf"
"""The folder of the configuration groups: in the package of a wheel, else at the top of the checkout."""
TIMELINE = "profiler/timeline.json.gz"  # of a run's folder


def is_utf8(path: Path | str) -> bool:
    """Whether a path is UTF-8: on Linux it may be any bytes, which Python represents by surrogates."""
    return all(not 0xD800 <= ord(letter) < 0xE000 for letter in str(path))


def absolute(path: Any) -> Any:
    """Return an absolute path, `~` expanded; pathlib raises if there is no such home. Other values stay."""
    return os.path.abspath(os.path.expanduser(path)) if isinstance(path, str) else path  # noqa: PTH100, PTH111


def short_path(path: Path | str) -> Path:
    """Return a path relative to the working directory, if it lies there."""
    return Path(path).relative_to(Path.cwd()) if Path(path).is_relative_to(Path.cwd()) else Path(path)


def open_file(path: Path | str) -> IO[bytes]:
    """Open a regular file to read, or raise an OSError: a FIFO would wait for ever, and /dev/zero never end."""
    if os.path.islink(path) and not os.path.exists(path):  # noqa: PTH110, PTH114
        raise FileNotFoundError(errno.ENOENT, f"it is a link to {os.readlink(path)}, which is not there", str(path))  # noqa: PTH115
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return file


def read_text(path: Path) -> str:
    with open_file(path) as file:
        return file.read().decode()


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
        return {**json.loads(read_text(path))}
    except (OSError, ValueError, TypeError):
        return {}


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace NaN and infinity, which JSON does not have, by None."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in values.items()
    }


def save_table(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Save a CSV file; all rows have the keys of the first."""
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    save_text(path, file.getvalue())
