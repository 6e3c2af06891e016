"""The end of a run in a few lines: what was run, how fast, how good the net is; metrics.json has the rest."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.base.text_table import GAP
from lockstep.runs.run_files import net_metrics

MAX_VALUES_IN_LINE = 12


def run_summary(
    metrics: Mapping[str, Any], test: bool | str = False, board: Path | None = None, resumed: bool = False
) -> str:
    """Return indented lines, each with a name.

    Args:
        test: the plan's.
        board: a folder with files of TensorBoard.
        resumed: training began from a checkpoint, which the times do not count.
    """
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
