"""What a run's folder holds for comparing: its record, by epoch and step, and its results."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.record import METRICS, RECORD, UNREADABLE
from lockstep.refusal import refuse

if TYPE_CHECKING:
    from torch import Tensor


TELLING = {"strategy", "devices", "world_size", "precision", "gradient_sync", "micro_batches", "sync_batchnorm"}
"""What the heading of a run says of its arithmetic, at least."""


class RunFolder:
    """`heading` tells the run from others; each may be empty.

    Raises:
        Refusal: there is no run, or there are two, or its record is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results: dict[str, Any] = {}
        self.heading: dict[str, Any] = {}
        self.steps: dict[tuple[int, int], dict[str, Any]] = {}
        self.validations: dict[int, dict[str, Any]] = {}
        self.tensors: dict[str, str] = {}
        for name, read in ((METRICS, self._read_results), (RECORD, self._read_record)):
            if (folder / name).is_file():
                try:
                    read((folder / name).read_text())
                except (ValueError, TypeError, AttributeError, KeyError):
                    raise refuse("run", folder / name, "it is damaged", "the folder of another run") from None
        if (folder / "lightning" / METRICS).is_file() and not self.steps:
            instead = f"{folder / 'lightning'} or {folder / 'raw'}"
            raise refuse("run", folder, "it holds two runs", instead)
        if self.heading and not self.heading.keys() >= TELLING:
            raise refuse("run", folder, "an older version left it", "the folder of a run of this version")
        if not self.heading:
            why = f"there is neither {RECORD} nor {METRICS} in this folder"
            raise refuse("run", folder, why, "the folder of a run, logs/train/…")

    def weights(self) -> "Mapping[str, Tensor]":
        """Parameters and buffers at the end, from the last checkpoint; none where it is lost or damaged."""
        from lockstep.checkpoint.content import net_state

        try:
            return net_state(self.folder / "checkpoints" / "last.ckpt")
        except UNREADABLE:
            return {}

    def _read_results(self, text: str) -> None:
        self.results.update(json.loads(text))
        self.heading = self.results

    def _read_record(self, text: str) -> None:
        for row in text.splitlines():
            [(kind, line)] = json.loads(row).items()
            if kind == "run":
                self.heading = {**line}
            elif kind == "step":
                self.steps[int(line["epoch"]), int(line["step"])] = line
            elif kind == "validation":
                self.validations[int(line["epoch"])] = line
            elif kind == "tensor":
                self.tensors[line["name"]] = line["digest"]
