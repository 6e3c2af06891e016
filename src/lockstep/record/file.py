"""record.jsonl: written, synced, and on a resume checked against what the checkpoint counts of it.

Only whole lines are added, and they are on the disk before the checkpoint that counts them is renamed.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lockstep.config_error import config_error
from lockstep.files import finite, save_text, sync_folder
from lockstep.run_files import RECORD, run_of

Line = Mapping[str, Mapping[str, Any]]  # `{kind: fields}`


class RecordFile:
    """The record of a running run, on rank 0 only."""

    def __init__(self, folder: Path, run_metadata: Mapping[str, Any], earlier: bytes = b"") -> None:
        """Write a new record.jsonl: its `run` line, then the lines that a resumed run had recorded before."""
        self.path = folder / RECORD
        self.size, self.sha = len(earlier), hashlib.sha256(earlier)
        save_text(self.path, _json_line({"run": run_metadata}) + earlier.decode())
        sync_folder(folder)

    @property
    def offset(self) -> dict[str, int | str]:
        """Return the size and the SHA-256 of the lines after the first."""
        return {"size": self.size, "sha256": self.sha.hexdigest()}

    def append(self, lines: Iterable[Line]) -> None:
        """Add all lines, or none if the disk is full."""
        content = "".join(map(_json_line, lines)).encode()
        size = self.path.stat().st_size
        try:
            with self.path.open("ab") as record:
                record.write(content)
        except OSError:
            os.truncate(self.path, size)
            raise
        self.sha.update(content)
        self.size += len(content)

    def sync(self) -> None:
        """Sync the file, before a checkpoint that counts its lines is saved."""
        with self.path.open("rb") as record:
            os.fsync(record.fileno())


def _json_line(line: Line) -> str:
    return json.dumps({kind: finite(values) for kind, values in line.items()}) + "\n"


def earlier_lines(checkpoint: Path, run_dir: Path, offset: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return the lines after the first that a checkpoint counts, from its run's folder; and a notice, or "".

    Without these lines a run may resume in another folder. In its own it would overwrite the record: a ConfigError.
    """
    run = run_of(checkpoint)
    lines = b""
    with suppress(OSError), (run / RECORD).open("rb") as record:
        record.readline()
        lines = record.read(offset["size"])
    if hashlib.sha256(lines).hexdigest() == offset["sha256"]:
        return lines, ""
    damaged = f"{RECORD} is not what it was when the checkpoint was saved"
    if run == Path(os.path.realpath(run_dir)):  # pathlib's raises where links lead in a circle
        hint = f"ckpt_path={checkpoint} without resume and hydra.run.dir, which trains on in a new folder"
        raise config_error("hydra.run.dir", run_dir, f"its {damaged}", hint)
    return b"", f"{run}: {damaged}; the new record begins where training resumes"
