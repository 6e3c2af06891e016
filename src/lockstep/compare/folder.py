"""What a run's folder holds for comparing: its record, by epoch and step, and its results."""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.record import METRICS, RECORD
from lockstep.refusal import refuse

if TYPE_CHECKING:
    from torch import Tensor


class RunFolder:
    """`heading` tells the run from others; each may be empty.

    Raises:
        Refusal: there is no run, or there are two, or its record is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results: dict[str, Any] = {}
        if (folder / METRICS).is_file():
            self.results = json.loads((folder / METRICS).read_text())
        self.heading: Mapping[str, Any] = self.results
        self.steps: dict[tuple[int, int], dict[str, Any]] = {}
        self.validations: dict[int, dict[str, Any]] = {}
        self.tensors: dict[str, str] = {}
        if (folder / RECORD).is_file():
            self._read(folder / RECORD)
        if (folder / "lightning" / METRICS).is_file() and not self.steps:
            instead = f"{folder / 'lightning'} or {folder / 'raw'}"
            raise refuse("run", folder, "it holds two runs", instead)
        if not self.heading:
            why = f"there is neither {RECORD} nor {METRICS} in this folder"
            raise refuse("run", folder, why, "the folder of a run, logs/train/…")

    @cached_property
    def weights(self) -> "Mapping[str, Tensor]":
        """Parameters and buffers at the end, from the last checkpoint."""
        from lockstep.checkpoint import net_state

        return net_state(self.folder / "checkpoints" / "last.ckpt")

    def _read(self, record: Path) -> None:
        for number, text in enumerate(record.read_text().splitlines(), 1):
            try:
                [(kind, line)] = json.loads(text).items()
            except (ValueError, AttributeError):
                raise refuse("run", record, f"line {number} is damaged", "the folder of another run") from None
            if kind == "run":
                self.heading = line
            elif kind == "step":
                self.steps[line["epoch"], line["step"]] = line
            elif kind == "validation":
                self.validations[line["epoch"]] = line
            elif kind == "tensor":
                self.tensors[line["name"]] = line["digest"]
