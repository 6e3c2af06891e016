"""record.jsonl: written, synced, and on a resume checked against what the checkpoint counts of it.

Only whole lines are added, and they are on the disk before the checkpoint that counts them is renamed.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.config_error import config_error
from lockstep.files import finite, save_text, sync_folder
from lockstep.run_files import RECORD, run_of

Line = Mapping[str, Mapping[str, Any]]
"""`{kind: fields}`."""


@dataclass(frozen=True)
class RecordOffset:
    """A position in the record: lines in all (0: none yet); bytes and SHA-256 of those behind the first."""

    lines: int = 0
    size: int = 0
    sha256: str = ""


def json_line(line: Line) -> str:
    """A line of record.jsonl."""
    return json.dumps({kind: finite(values) for kind, values in line.items()})


class Damaged(Exception):
    """The record does not begin with the lines that the checkpoint counts; the message says why."""


class RecordFile:
    """The record of a running run, on rank 0 only."""

    def __init__(self, folder: Path, run: Mapping[str, Any], earlier: bytes = b"") -> None:
        """Begin a record.jsonl: its `run` line, then, on a resume, what was recorded before."""
        self.path = folder / RECORD
        self.lines, self.size, self.sha = 1 + earlier.count(b"\n"), len(earlier), hashlib.sha256(earlier)
        save_text(self.path, f"{json_line({'run': run})}\n{earlier.decode()}")
        sync_folder(folder)

    @property
    def mark(self) -> RecordOffset:
        return RecordOffset(self.lines, self.size, self.sha.hexdigest())

    def append(self, lines: Iterable[Line]) -> None:
        """Add lines, all or, where the disk is full, none."""
        texts = [f"{json_line(line)}\n" for line in lines]
        content = "".join(texts).encode()
        size = self.path.stat().st_size
        try:
            with self.path.open("ab") as record:
                record.write(content)
        except OSError:
            os.truncate(self.path, size)
            raise
        self.sha.update(content)
        self.lines, self.size = self.lines + len(texts), self.size + len(content)

    def sync(self) -> None:
        """Sync it, before a checkpoint that counts these lines is saved."""
        with self.path.open("rb") as record:
            os.fsync(record.fileno())


def lines_so_far(checkpoint: Path, run_dir: Path, mark: RecordOffset) -> tuple[bytes, str]:
    """The lines behind the first that a checkpoint counts, of the record in its run's folder; and a notice, or "".

    With a missing or damaged record a run may resume in another folder; not in its own, where it would overwrite the
    rest of the record.

    Raises:
        ConfigError: it is damaged, and the folder is its own.
    """
    run = run_of(checkpoint)
    path = run / RECORD
    try:
        earlier = read_lines(path, mark)
    except Damaged as damaged:
        if run == Path(os.path.realpath(run_dir)):  # pathlib's raises where links lead in a circle
            reason = f"its {RECORD} {damaged}"
            hint = f"ckpt_path={checkpoint} without resume and hydra.run.dir, which trains on in a new folder"
            raise config_error("hydra.run.dir", run_dir, reason, hint) from None
        return b"", f"{path} {damaged}: the new record begins where training resumes"
    return earlier, ""


def read_lines(path: Path, mark: RecordOffset) -> bytes:
    """The lines behind the first that a checkpoint counts.

    Raises:
        Damaged: they are not there, or not what they were.
    """
    try:
        with path.open("rb") as record:
            if not record.readline().endswith(b"\n"):
                raise Damaged("has no first line")
            earlier = record.read(mark.size)
    except OSError as error:
        raise Damaged(f"cannot be read ({error.strerror})") from None
    there = 1 + earlier.count(b"\n")
    if len(earlier) != mark.size:
        raise Damaged(f"has {there} whole lines of the {mark.lines} that the checkpoint counts")
    if hashlib.sha256(earlier).hexdigest() != mark.sha256 or there != mark.lines:
        raise Damaged("is not what it was when the checkpoint was saved")
    return earlier


def missing_steps(earlier: bytes, steps: int) -> int:
    """How many of the steps done have no line at the record's beginning."""
    for line in earlier.splitlines():
        if line.startswith(b'{"step"'):
            return int(json.loads(line)["step"]["step"]) - 1
    return steps
