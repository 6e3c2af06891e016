"""A run's folder, read for comparing: its record by epoch and step, everything else by the keys of the ledger."""

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lockstep.config_error import config_error
from lockstep.run_files import CONFIG, CONFUSION, METRICS, RECORD
from lockstep.strategies.registry import STRATEGIES

if TYPE_CHECKING:
    from torch import Tensor


TELLING = {"strategy", "devices", "world_size", "precision", "gradient_sync", "micro_batches", "sync_batchnorm"}
"""What the heading of a run has at least: what its arithmetic depends on."""
CHECKPOINTS = ("last.ckpt", "previous.ckpt", "best.ckpt")


class RecordedRun:
    """`heading`: the `run` line of the record, or metrics.json where there is no record. Each may be empty.

    Raises:
        ConfigError: the folder holds no run or two, or a file is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps: dict[tuple[int, int], dict[str, Any]] = {}
        self.fingerprints: dict[tuple[int, int], dict[str, Any]] = {}
        self.validations: dict[tuple[int, float], dict[str, Any]] = {}
        self.tensors: dict[str, str] = {}
        self.unknown: set[str] = set()
        self.results: dict[str, Any] = self._read(METRICS, json.loads)
        self.run_metadata: dict[str, Any] = self._read(RECORD, self._read_record) or self.results
        if (folder / "lightning" / METRICS).is_file() and not self.steps:
            hint = f"{folder / 'lightning'} or {folder / 'raw'}"
            raise config_error("run", folder, "it holds two runs", hint)
        metadata = self.run_metadata
        if metadata and not (metadata.keys() >= TELLING and metadata["strategy"] in STRATEGIES):
            raise config_error("run", folder, "another version left it", "the folder of a run of this version")
        if not self.run_metadata:
            reason = f"there is neither {RECORD} nor {METRICS} in this folder"
            raise config_error("run", folder, reason, "the folder of a run, logs/train/…")
        self.config: dict[str, Any] = self._read(CONFIG, yaml.safe_load)
        self.confusion = self._read(CONFUSION, confusion_cells)

    def _read(self, name: str, parse: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
        """Parse one file of the folder; return nothing where it is missing."""
        path = self.folder / name
        try:
            return {**parse(path.read_text())} if path.is_file() else {}
        except (ValueError, TypeError, AttributeError, KeyError, yaml.YAMLError, csv.Error):
            raise config_error("run", path, "it is damaged", "the folder of another run") from None

    def leaves(self) -> dict[str, Any]:
        """The values in the files beside the checkpoints, by the keys of the ledger; of the record its first line."""
        run_metadata = self.run_metadata if self.run_metadata is not self.results else {}
        return {
            **{f"{CONFIG}:{key}": value for key, value in flattened(self.config) if key},
            **{f"{METRICS}:{key}": value for key, value in self.results.items()},
            **{f"{RECORD}:run.{key}": value for key, value in run_metadata.items()},
            **{f"{CONFUSION}:{key}": value for key, value in self.confusion.items()},
            **dict.fromkeys(self.unknown, "there"),
        }

    def files(self) -> dict[str, str]:
        """All files that are there."""
        found = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        names = (str(path.relative_to(self.folder)).removeprefix("checkpoints/") for path in found)
        return {f"{name}:": "there" for name in names}

    @property
    def missing_steps(self) -> int:
        """How many of the first steps the record says that it lacks."""
        return int(self.run_metadata.get("missing_steps", 0))

    @cached_property
    def checkpoints(self) -> dict[str, Any]:
        """Each of CHECKPOINTS that is there, or what is wrong with it."""
        paths = {name: self.folder / "checkpoints" / name for name in CHECKPOINTS}
        return {name: _load(path) for name, path in paths.items() if path.is_file()}

    @property
    def last(self) -> Mapping[str, Any]:
        """The last checkpoint; empty where it is missing or damaged."""
        checkpoint = self.checkpoints.get(CHECKPOINTS[0])
        return checkpoint if isinstance(checkpoint, Mapping) else {}

    @cached_property
    def weights(self) -> "Mapping[str, Tensor]":
        """Parameters and buffers at the end, from the last checkpoint; empty where it is missing or damaged."""
        from lockstep.checkpoint.content import net_weights
        from lockstep.structures import tensors_of

        if isinstance(trained := self.last.get("current_model_state"), Mapping):
            return tensors_of(
                net_weights({**self.last, "state_dict": trained})
            )  # WeightAveraging saves averages as the state_dict
        return tensors_of(net_weights(self.last)) if self.last else {}

    def _read_record(self, text: str) -> dict[str, Any]:
        """Sort the lines by kind; return the `run` line."""
        run_metadata: dict[str, Any] = {}
        for row in text.splitlines():
            [(kind, line)] = json.loads(row).items()
            if kind == "run":
                run_metadata = {**line}
            elif kind in ("step", "fingerprint"):
                _add(self.steps if kind == "step" else self.fingerprints, (int(line["epoch"]), int(line["step"])), line)
            elif kind == "validation":
                _add(self.validations, (int(line["epoch"]), int(line.get("after_batch", 0)) or math.inf), line)
            elif kind == "tensor":
                _add(self.tensors, line["name"], line["digest"])
            else:
                self.unknown.add(f"{RECORD}:{kind}")
        return run_metadata


def _load(path: Path) -> Mapping[str, Any] | str:
    """Return a checkpoint, or what is wrong with it."""
    from lockstep.checkpoint.content import net_weights
    from lockstep.checkpoint.files import damage
    from lockstep.safe_loading import load

    if torn := damage(path):
        return torn
    try:
        checkpoint: dict[str, Any] = {**load(path)}
        net_weights(checkpoint)
    except Exception as error:  # what a file holds may raise anything
        return f"it is no checkpoint ({type(error).__name__})"
    return checkpoint


def confusion_cells(text: str) -> dict[str, int]:
    """Return the counts of confusion.csv by true and predicted class."""
    rows = ((row.pop("true"), row) for row in csv.DictReader(text.splitlines()))
    return {f"true {label}, {column}": int(count) for label, row in rows for column, count in row.items()}


def _add(lines: dict[Any, Any], key: Any, line: Any) -> None:
    if key in lines:
        raise ValueError(f"two lines of {key}")
    lines[key] = line


def flattened(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested mappings and lists, by dotted keys; `model.name` is `model`, as on the command line."""
    if isinstance(value, Mapping) and value:
        for key, own in value.items():
            yield from flattened(own, prefix if key == "name" and prefix else f"{prefix}.{key}".removeprefix("."))
    elif isinstance(value, list | tuple) and value:
        for index, own in enumerate(value):
            yield from flattened(own, f"{prefix}.{index}".removeprefix("."))
    else:
        yield prefix, value
