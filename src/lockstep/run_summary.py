"""The end of a run in a few lines: what was run, how fast, how good the net is; metrics.json has the rest."""

from collections.abc import Mapping

from lockstep.run_files import net_metrics
from lockstep.text_table import GAP

MAX_VALUES = 12
"""Values in a line."""


def run_summary(metrics: Mapping[str, object]) -> str:
    """Return indented lines, each with a name."""
    lines = {"run": _run(metrics), "time": _time(metrics)}
    stages: dict[str, dict[str, float]] = {"train": {}, "val": {}, "test": {}, "logged": {}}
    for name, value in net_metrics(metrics).items():
        stage, slash, metric = name.partition("/")
        in_stage = slash and stage in ("train", "val", "test")
        stages[stage if in_stage else "logged"][metric if in_stage else name] = value
    logged = stages.pop("logged")
    lines |= {stage: _values(values) for stage, values in stages.items()}
    if "best" in metrics:
        lines["best"] = f"{metrics['monitor']} {_text(metrics['best'])}"
    lines["logged"] = _values(logged)
    return "\n".join(f"{GAP}{name:<6}{GAP}{line}" for name, line in lines.items() if line)


def _run(metrics: Mapping[str, object]) -> str:
    devices = int(str(metrics["devices"])) * int(str(metrics["num_nodes"]))
    world = f"{metrics['strategy']} × {devices}" if devices > 1 else str(metrics["strategy"])
    return f"{metrics['model']} on {metrics['data']}, {world}, {metrics['engine']}, {metrics['accelerator']}"


def _time(metrics: Mapping[str, object]) -> str:
    parts = []
    if metrics.get("train_seconds"):
        counts = ((metrics[name], name) for name in ("epochs", "steps"))
        counted = ", ".join(f"{count} {name[:-1] if count == 1 else name}" for count, name in counts)
        speed = f"{float(str(metrics['samples_per_second'])):.0f} samples/s"
        parts.append(f"{counted} in {_text(metrics['train_seconds'])} s: {speed}")
    if "total_seconds" in metrics:
        parts.append(f"{_text(metrics['total_seconds'])} s in all")
    return ", ".join(parts)


def _values(values: Mapping[str, float]) -> str:
    named = [f"{name} {_text(value)}" for name, value in values.items()]
    more = [f"and {len(named) - MAX_VALUES} more"] if len(named) > MAX_VALUES else []
    return ", ".join([*named[:MAX_VALUES], *more])


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
