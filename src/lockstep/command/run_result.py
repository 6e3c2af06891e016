"""What `lockstep.run` returns: the metrics of a run, its folder, history and net; and the summary that a run prints."""

import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from lockstep.base.text_table import GAP
from lockstep.runs.report import in_notebook, page_of
from lockstep.runs.run_files import RECORD, Metrics, net_metrics

MAX_VALUES_IN_LINE = 12


class RunResult(dict[str, str | int | float]):
    """The content of metrics.json, as a dict; its `repr` is the summary of the run.

    folder: of the run. test: the plan's: whether the last net was tested, or the best one.
    checkpoint: the one that a run with `train=false` tested.
    """

    def __init__(self, metrics: Metrics, folder: Path, test: bool | str = False, checkpoint: str | None = None) -> None:
        super().__init__(metrics)
        self.folder, self.test, self.checkpoint = folder, test, checkpoint

    @property
    def history(self) -> Any:
        """Return a column for each value of an epoch: a pandas.DataFrame if pandas is installed, else NumPy arrays.

        `epoch`, from 1; `train/loss`, the mean over the samples of the epoch; `lr`, of its last step; and what was
        validated or logged at its end. NaN where an epoch has no such value. Of `engine=both` those of Lightning's run.
        """
        import numpy as np

        rows = self._epochs()
        names = dict.fromkeys(name for row in rows for name in row)
        types = {"epoch": np.int64}
        columns = {name: np.array([row.get(name) for row in rows], types.get(name, np.float64)) for name in names}
        if find_spec("pandas") is None:
            return columns
        import pandas as pd

        return pd.DataFrame(columns)

    def net(self, device: str = "cpu") -> Any:
        """Return the trained net, or the one that was tested, as `lockstep.load` does."""
        from lockstep.command.inference import load  # with torch

        return load(self.checkpoint or self.folder, device)

    def _repr_html_(self) -> str:
        """Return report.html, which Jupyter shows in place of the summary."""
        return in_notebook(page_of(self.folder))

    def _epochs(self) -> list[dict[str, Any]]:
        """Return a row for each epoch of the record, with its latest values."""
        from lockstep.runs.compare import RecordedRun

        folder = self.folder if (self.folder / RECORD).is_file() else self.folder / "lightning"
        if not (folder / RECORD).is_file():
            return []
        run, rows = RecordedRun(folder), dict[int, dict[str, Any]]()
        for epoch, steps in groupby(run.steps.values(), itemgetter("epoch")):
            lines = [*steps]
            counted = [line for line in lines if line.get("loss_sum")]  # 0 of a module that steps its optimizers itself
            rows[epoch] = {"epoch": epoch}
            if counted:
                total, samples = (sum(line[name] for line in counted) for name in ("loss_sum", "samples"))
                rows[epoch]["train/loss"] = total / samples
            rows[epoch]["lr"] = lines[-1]["lr"]
        for (epoch, _), line in run.lines["validation"].items():
            rows.setdefault(epoch, {}).update({name: line[name] for name in line if not name.startswith("after_")})
        return [rows[epoch] for epoch in sorted(rows)]

    def __repr__(self) -> str:
        verdict = {"both": str(self["verdict"])} if "verdict" in self else {}
        rows = {**summary_rows(self, self.test), **verdict, "folder": str(self.folder)}
        return "\n".join(f"{name:<6}  {text}" for name, text in rows.items())


def run_summary(
    metrics: Mapping[str, Any], test: bool | str = False, board: Path | None = None, resumed: bool = False
) -> str:
    """Return indented lines, each with a name; `board`: a folder for TensorBoard; `resumed`: from a checkpoint."""
    rows = summary_rows(metrics, test, resumed)
    if board:
        rows["next"] = f"tensorboard --logdir {shlex.quote(str(board))}"
    return "\n".join(f"{GAP}{name:<6}{GAP}{line}" for name, line in rows.items())


def summary_rows(metrics: Mapping[str, Any], test: bool | str, resumed: bool = False) -> dict[str, str]:
    """Return what the lines say, by their names."""
    run = f"{run_title(metrics)}, {metrics['parameters']} parameters"
    lines, values = {"run": run, "time": _time(metrics, resumed)}, net_metrics(metrics)
    for stage in ("train/", "val/", "test/"):
        names = [name for name in values if name.startswith(stage)]
        lines[stage[:-1]] = _values({name.removeprefix(stage): values.pop(name) for name in names})
    lines["best"] = _best(metrics, test) if "best" in metrics else ""
    lines["logged"] = _values(values)
    return {name: line for name, line in lines.items() if line}


def run_title(values: Mapping[str, Any]) -> str:
    """Return what is trained, and how, from metrics or the options of a plan: `MLP on Digits, ddp × 2, raw, cpu`."""
    names = {key: getattr(values[key], "name", values[key]) for key in ("model", "data", "strategy", "engine")}
    devices = values["devices"] * values["num_nodes"]
    world = names["strategy"] + (f" × {devices}" if devices > 1 else "")
    return f"{names['model']} on {names['data']}, {world}, {names['engine']}, {values['accelerator']}"


def _best(metrics: Mapping[str, Any], test: bool | str) -> str:
    epoch = metrics["best_epoch"]
    hint = "" if metrics["epochs"] == epoch else " (test=best: this one)"
    tested = f"; tested: {'this net' if test == 'best' else f'the last net{hint}'}" if test else ""
    return f"{metrics['monitor']} {_text(metrics['best'])} in epoch {epoch}{tested}"


def _time(metrics: Mapping[str, Any], resumed: bool) -> str:
    parts = []
    if metrics.get("train_seconds"):
        counts = ((metrics[name], name) for name in ("epochs", "steps"))
        counted = ", ".join(f"{count} {name[:-1] if count == 1 else name}" for count, name in counts)
        keys = {name: f"{name}/train_seconds" for name in ("lightning", "raw")}  # of engine=both
        took = ", ".join(f"{name} {_seconds(metrics[key])}" for name, key in keys.items() if key in metrics)
        speed = f"{_seconds(metrics['train_seconds'])}: {metrics['samples_per_second']:.0f} samples/s"
        parts.append(f"{counted}: {took}" if took else f"{counted}{', resumed for' if resumed else ' in'} {speed}")
    if "total_seconds" in metrics:
        parts.append(f"{_seconds(metrics['total_seconds'])} in all")
    return ", ".join(parts)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"


def _values(values: Mapping[str, float]) -> str:
    named = [f"{name} {_text(value)}" for name, value in values.items()]
    more = [f"and {len(named) - MAX_VALUES_IN_LINE} more"] if len(named) > MAX_VALUES_IN_LINE else []
    return ", ".join([*named[:MAX_VALUES_IN_LINE], *more])


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
