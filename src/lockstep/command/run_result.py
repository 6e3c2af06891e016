"""What `lockstep.run` returns: the metrics, folder, history and module of a run; and the summary that it prints."""

import os
from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from lockstep.base.text_table import GAP, figures, short_text
from lockstep.runs.compare import Comparison, RecordedRun, compare
from lockstep.runs.compare.recorded_run import logged_in
from lockstep.runs.report import in_notebook, page_of
from lockstep.runs.run_files import RECORD, Metrics, net_metrics

MAX_VALUES_IN_LINE = 12


class RunResult(dict[str, str | int | float]):
    """The content of metrics.json, as a dict; its `repr` is the summary of the run. It is a path: that of its folder.

    folder: of the run. checkpoint: the one that a run with `train=false` tested.
    """

    def __init__(self, metrics: Metrics, folder: Path, checkpoint: str | None = None) -> None:
        super().__init__(metrics)
        self.folder, self.checkpoint = folder, checkpoint

    def __fspath__(self) -> str:
        return str(self.folder)

    def _repr_html_(self) -> str:
        """Return report.html, which Jupyter shows in place of the summary."""
        return in_notebook(page_of(self.folder))

    @property
    def metrics(self) -> dict[str, float]:
        """Return the losses and metrics of train, val and test at the end of the run, without times and options."""
        return net_metrics(self)

    @property
    def history(self) -> list[dict[str, Any]]:
        """Return a row for each epoch, for pandas.DataFrame, say: empty if the run did not train.

        `epoch`, from 1; `train/loss`, the mean over the samples of the epoch; `lr`, of its last step; and what was
        validated or logged at its end. Of `engine=both` those of Lightning's run.
        """
        folder = self.folder if (self.folder / RECORD).is_file() else self.folder / "lightning"
        if not (folder / RECORD).is_file():
            return []
        run, rows = RecordedRun(folder), dict[int, dict[str, Any]]()
        for epoch, lines in groupby(run.steps.values(), itemgetter("epoch")):
            steps = [*lines]
            counted = [line for line in steps if line.get("loss_sum")]  # 0 of a module that steps its optimizers itself
            total, samples = (sum(line[name] for line in counted) for name in ("loss_sum", "samples"))
            loss = {"train/loss": total / samples} if counted else {}
            rows[epoch] = {"epoch": epoch, **loss, "lr": steps[-1]["lr"]}
        for (epoch, _), line in run.lines["validation"].items():
            rows.setdefault(epoch, {"epoch": epoch}).update(logged_in(line))
        return [rows[epoch] for epoch in sorted(rows)]

    def compare(self, other: str | os.PathLike[str], tolerance: float | None = None) -> Comparison:
        """Return where this run and another differ: a result, or the folder of a run."""
        return compare(self.folder, other, tolerance)

    def module(self, device: str = "cpu") -> Any:
        """Return the trained LightningModule, or the one that was tested, as `lockstep.load` does."""
        from lockstep.command.inference import load  # with torch

        return load(self.checkpoint or self.folder, device)

    def __repr__(self) -> str:
        verdict = {"both": str(self["verdict"])} if "verdict" in self else {}
        return run_summary(self, **verdict, folder=str(self.folder))


def run_summary(metrics: Mapping[str, Any], **more: str) -> str:
    """Return indented lines, each with a name: the run, its time and its values; then some more."""
    values, times = net_metrics(metrics), []
    if metrics.get("train_seconds"):
        counted = ((metrics[name], name) for name in ("epochs", "steps"))
        counts = ", ".join(f"{count} {name[:-1] if count == 1 else name}" for count, name in counted)
        speed = f"{metrics['samples_per_second']:.0f} samples/s"
        times = [f"{counts} in {figures(metrics['train_seconds'])} s: {speed}"]
    if "total_seconds" in metrics:
        times.append(f"{figures(metrics['total_seconds'])} s in all")
    lines = {"run": f"{run_title(metrics)}, {metrics['parameters']} parameters", "time": ", ".join(times)}
    for stage in ("train/", "val/", "test/"):
        names = [name for name in values if name.startswith(stage)]
        lines[stage[:-1]] = _values({name.removeprefix(stage): values.pop(name) for name in names})
    if "best" in metrics:
        lines["best"] = f"{metrics['monitor']} {short_text(metrics['best'])} in epoch {metrics['best_epoch']}"
    lines |= {"logged": _values(values), **more}
    return "\n".join(f"{GAP}{name:<6}{GAP}{line}" for name, line in lines.items() if line)


def run_title(values: Mapping[str, Any]) -> str:
    """Return what is trained, and how, from metrics or the options of a plan: `MLP on Digits, ddp × 2, raw, cpu`."""
    names = {key: getattr(values[key], "name", values[key]) for key in ("model", "data", "strategy", "engine")}
    devices = values["devices"] * values["num_nodes"]
    world = names["strategy"] + (f" × {devices}" if devices > 1 else "")
    return f"{names['model']} on {names['data']}, {world}, {names['engine']}, {values['accelerator']}"


def _values(values: Mapping[str, float]) -> str:
    named = [f"{name} {short_text(value)}" for name, value in values.items()]
    more = [f"and {len(named) - MAX_VALUES_IN_LINE} more"] if len(named) > MAX_VALUES_IN_LINE else []
    return ", ".join([*named[:MAX_VALUES_IN_LINE], *more])
