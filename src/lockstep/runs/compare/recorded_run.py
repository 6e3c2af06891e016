"""A run's folder, read for comparing: its record by epoch and step, its other files by the keys of the rules."""

import csv
import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from lockstep.base.config_error import ConfigError, config_error, errors_as
from lockstep.plan.plan import SUMMARY_KEYS
from lockstep.plan.schemas.groups import WORLD, leaves
from lockstep.runs.checkpoint.files import BEST, FOLDER, LAST, DamagedCheckpoint, read_checkpoint
from lockstep.runs.compare.comparison import MISSING, Comparison, Values
from lockstep.runs.run_files import CONFIG, CONFUSION, FINGERPRINTED, METRICS, RECORD, REPLICATED, read_config

REQUIRED = {"strategy", "devices", "world_size", "precision", "gradient_sync", "micro_batches", "sync_batchnorm"}
Line = dict[str, Any]
IN_CONFIG = (*WORLD, "precision", "sync_batchnorm", "compile")  # in which the two runs may differ
LINE_KEYS: dict[str, Callable[[Line], Any]] = {  # what identifies a line of the record among those of its kind
    "step": lambda line: (line["epoch"], line["step"]),
    "fingerprint": lambda line: (line["epoch"], line["step"]),
    "validation": lambda line: (line["epoch"], line.get("after_batch", math.inf)),
    "tensor": lambda line: line["name"],
}


class RecordedRun:
    """The files of a run, read. `lines`: those of the record, by kind and by LINE_KEYS; `steps`: by epoch and step.

    `run_metadata`: the `run` line of the record, or metrics.json if there is no record.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: dict[str, dict[Any, Line]] = {kind: {} for kind in LINE_KEYS}
        self.steps = self.lines["step"]
        self.results = self._read(METRICS, json.loads)
        self.run_metadata = self._read(RECORD, self._read_record) or self.results
        if (folder / "lightning" / METRICS).is_file() and not self.steps:
            raise config_error("run", folder, "it holds two runs", f"{folder / 'lightning'} or {folder / 'raw'}")
        if not self.run_metadata.keys() >= REQUIRED:
            reason = f"there is neither {RECORD} nor {METRICS} of this version in it"
            raise config_error("run", folder, reason, "the folder of a run, logs/train/…")
        self.config = self._read(CONFIG, lambda _: read_config(folder)[0])
        self.confusion = self._read(CONFUSION, _confusion_counts)

    def _read(self, name: str, parse: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
        """Parse one file of the folder; return nothing if it is missing."""
        path = self.folder / name
        with errors_as(partial(damaged, path)), suppress(FileNotFoundError, NotADirectoryError):
            return {**parse(path.read_text())}
        return {}

    def _read_record(self, text: str) -> Line:
        """Sort the lines by kind; return the `run` line."""
        run_metadata: Line = {}
        for row in text.splitlines():
            [(kind, line)] = json.loads(row).items()
            if kind == "run":
                run_metadata = line
            elif (key := LINE_KEYS[kind](line)) in self.lines[kind]:
                raise ValueError(f"two lines of {key}")
            else:
                self.lines[kind][key] = line
        return run_metadata

    @property
    def end(self) -> float:
        """Return the number of the last optimizer step."""
        return max(self.last_steps.values(), default=0)

    @cached_property
    def last_steps(self) -> dict[int, float]:
        """Return the last optimizer step of each epoch."""
        return dict(self.steps.keys())

    @cached_property
    def validations(self) -> list[tuple[float, Line]]:
        """Return the logged values after each validation and epoch, with the optimizer step that they follow."""
        return [
            (line.get("after_step") or self.last_steps.get(epoch, 0), logged_in(line))
            for (epoch, _), line in self.lines["validation"].items()
        ]

    def values(self) -> Values:
        """Return the values in config.yaml, metrics.json, confusion.csv and the first line of the record."""
        files = {f"{CONFIG}:": self.config, f"{METRICS}:": self.results, f"{CONFUSION}:": self.confusion}
        files |= {} if self.run_metadata is self.results else {f"{RECORD}:run.": self.run_metadata}
        return self._placed(
            {f"{at}{key}": value for at, values in files.items() for key, value in leaves(values) if key}
        )

    def files(self, other: "RecordedRun") -> Values:
        """Return a key for each file of the folder, and the values in the checkpoints that `other` has, too.

        The weights of two best.ckpt are comparable if they are of the same epoch.
        """
        paths = (path.relative_to(self.folder) for path in sorted(self.folder.rglob("*")) if not path.is_dir())
        files = {f"{str(path).removeprefix('checkpoints/')}:": "there" for path in paths}
        for name, checkpoint in ((LAST, self.last), (BEST, self.best)):
            if f"{name}:" in files and not checkpoint:
                files[f"{name}:"] = f"damaged in {self.folder}"  # of two damaged ones nothing is known
        if self.last and other.last:
            files |= {f"{LAST}:{key}": value for key, value in leaves(self.last)}
        if self.best and other.best:
            best = self.best if self.best["epoch"] == other.best["epoch"] else {"epoch": self.best["epoch"]}
            files |= {f"{BEST}:{key}": value for key, value in leaves(best)}
        return self._placed(files)

    def _placed(self, values: Mapping[str, Any]) -> Values:
        """Return the values of files, which have no place beside their keys, as of the end of the run."""
        return {(key, key.removesuffix(":").replace(":", ", ", 1)): (value, self.end) for key, value in values.items()}

    @cached_property
    def last(self) -> Mapping[str, Any]:
        """Return the last checkpoint; empty if it is missing or damaged."""
        return self._checkpoint(LAST)

    @cached_property
    def best(self) -> dict[str, Any]:
        """Return the weights in best.ckpt and their epoch; empty if it is missing or damaged."""
        from lockstep.runs.checkpoint.content import SECTION  # with torch

        checkpoint = self._checkpoint(BEST)
        best = checkpoint.get(SECTION, {}).get("best") or ("", 0.0, checkpoint.get("epoch"))
        return {"epoch": best[2], "state_dict": checkpoint.get("state_dict")} if checkpoint else {}

    def _checkpoint(self, name: str) -> Mapping[str, Any]:
        try:
            return read_checkpoint(self.folder / FOLDER / name)
        except DamagedCheckpoint:
            return {}


def damaged(path: Path | str, error: Exception) -> ConfigError:
    """Return the error of files that cannot be read or compared, whatever it has raised."""
    reason = f"it is damaged ({type(error).__name__})"
    if isinstance(error, OSError):
        reason = f"it cannot be read ({error.strerror})"
    return config_error("run", path, reason, "the folder of another run")


def _confusion_counts(text: str) -> dict[str, int]:
    """Return the counts of confusion.csv by true and predicted class."""
    rows = ((row.pop("true"), row) for row in csv.DictReader(text.splitlines()))
    return {f"true {label}, {column}": int(count) for label, row in rows for column, count in row.items()}


def logged_in(line: Line) -> Line:
    """Return the logged values of a line of a validation."""
    return {name: value for name, value in line.items() if name != "epoch" and not name.startswith("after_")}


def mean_loss(line: Mapping[str, Any]) -> float | None:
    """Return the mean loss of a step's samples."""
    return line["loss_sum"] / line["samples"] if line.get("loss_sum") is not None and line["samples"] else None


def record_values(run: RecordedRun, other: RecordedRun) -> Values:
    """Return the values of all lines but the first; a step that `other` does not have is a single value."""
    values: dict[tuple[str, str], tuple[Any, float]] = {}
    for (epoch, step), line in run.steps.items():
        place = f"epoch {epoch}, step {step}"
        values[f"{RECORD}:step.step", place] = "there", step
        if (epoch, step) in other.steps:
            for name, value in leaves(line):
                if name == "loss_sum" and value is not None:
                    value /= line.get("samples") or 1  # a mean, so that a difference does not grow with the batch
                if name not in ("epoch", "step", "grad_norm_spread"):
                    values[f"{RECORD}:step.{name}", f"{place}, {name}"] = value, step
    for (epoch, step), line in run.lines["fingerprint"].items():
        if (other_line := other.lines["fingerprint"].get((epoch, step))) is not None:
            for kind in (kind for kind in FINGERPRINTED if _is_sharded(line, kind) == _is_sharded(other_line, kind)):
                for rank, fingerprint in enumerate(line.get(kind, [])):
                    place = f"epoch {epoch}, step {step}, {kind} of rank {rank}"
                    values[f"{RECORD}:fingerprint.{kind}", place] = fingerprint, step
    for (epoch, batch), line in run.lines["validation"].items():
        place = f"epoch {epoch}" if batch == math.inf else f"epoch {epoch}, batch {batch}"
        step = line.get("after_step") or run.last_steps.get(epoch, math.inf)
        for name in sorted(logged_in(line)):
            values[f"{RECORD}:validation.{name}", f"{place}, {name}"] = line[name], step
    for name, line in run.lines["tensor"].items():
        values[f"{RECORD}:tensor.{name}", f"after the last epoch, {name}"] = line.get("digest"), run.end
    return values


def _is_sharded(line: Line, kind: str) -> bool:
    """Whether each rank has fingerprinted a part of its own: of the weights and the optimizer state, or of one kind."""
    return kind in ("weights", "optimizer") and line.get("sharded", False) in (True, kind)


def compare_within(comparison: Comparison, run: RecordedRun) -> None:
    """Compare the files of one run with the first line of its record, and the norms and fingerprints of its ranks."""
    config, metadata = dict(leaves(run.config, of_lists=False)) if run.config else {}, run.run_metadata
    is_trained = metadata is not run.results and config.get("train") is not False  # a test alone writes no record
    for file, values, keys in ((CONFIG, config, IN_CONFIG), (METRICS, run.results, SUMMARY_KEYS)) if is_trained else ():
        for key in keys if values else ():
            if (value := values.get(key, MISSING)) not in (None, "auto") and key in metadata:
                comparison.add(f"{RECORD}:altered.{key}", value, metadata[key], f"{file}, {key} in {run.folder}", 0)
    for (epoch, step), line in run.steps.items():
        place = f"epoch {epoch}, step {step}, grad_norm_spread in {run.folder}"
        comparison.add(f"{RECORD}:step.grad_norm_spread", line.get("grad_norm_spread", 0.0), 0.0, place, step)
    for (epoch, step), line in run.lines["fingerprint"].items():
        for kind in (kind for kind in line if kind.startswith((*FINGERPRINTED, REPLICATED))):
            if run.run_metadata.get("per_rank_buffers", True) if kind == "buffers" else _is_sharded(line, kind):
                continue
            (first, expected), *others = [(rank, each) for rank, each in enumerate(line[kind]) if each is not None]
            for rank, fingerprint in others:
                place = f"epoch {epoch}, step {step}, {kind} of ranks {first} and {rank} in {run.folder}"
                comparison.add(f"{RECORD}:ranks.{kind}", expected, fingerprint, place, step)
