"""The end of a run in a few lines: what was run, how fast, how good the net is; metrics.json has the rest."""

from collections.abc import Mapping
from textwrap import wrap

from lockstep.run_files import net_metrics
from lockstep.text_table import GAP, terminal_width

HELD = "\N{NO-BREAK SPACE}"
"""Between a number and its unit, or its name: no line ends there."""
MOST_NAMED = 12
"""Values in a line."""


def run_summary(metrics: Mapping[str, object]) -> str:
    """Indented lines, each with a name; one that is longer than the terminal goes on below its beginning."""
    found = net_metrics(metrics)
    lines = {"run": _what(metrics), "time": _time(metrics)}
    for stage in ("train", "val", "test"):
        lines[stage] = _values({name.partition("/")[2]: own for name, own in found.items() if _stage(name) == stage})
    if "best" in metrics:
        lines["best"] = f"{metrics['monitor']} {_shown(metrics['best'])}"
    lines["logged"] = _values({name: own for name, own in found.items() if not _stage(name)})
    width = max(map(len, lines))
    text = []
    for name, line in lines.items():
        begin = f"{GAP}{name:<{width}}{GAP}"
        room, indent = max(20 + len(begin), terminal_width()), " " * len(begin)
        text += wrap(line, room, initial_indent=begin, subsequent_indent=indent, break_long_words=False)
    return "\n".join(text).replace(HELD, " ")


def _what(metrics: Mapping[str, object]) -> str:
    devices = int(str(metrics["devices"])) * int(str(metrics["num_nodes"]))
    world = f"{metrics['strategy']} × {devices}" if devices > 1 else str(metrics["strategy"])
    return f"{metrics['model']} on {metrics['data']}, {world}, {metrics['engine']}, {metrics['accelerator']}"


def _time(metrics: Mapping[str, object]) -> str:
    total = metrics.get("total_seconds")
    whole = f"{_shown(total)}{HELD}s in all" if total is not None else ""
    if not metrics.get("train_seconds"):
        return whole
    counted = ((metrics[what], what) for what in ("epochs", "steps"))
    counts = ", ".join(f"{number}{HELD}{what[:-1] if number == 1 else what}" for number, what in counted)
    done = f"{counts} in {_shown(metrics['train_seconds'])}{HELD}s"
    speed = f"{float(str(metrics['samples_per_second'])):.0f}{HELD}samples/s"
    return ", ".join(filter(None, [f"{done}: {speed}", whole]))


def _values(values: Mapping[str, float]) -> str:
    named = [f"{name}{HELD}{_shown(value)}" for name, value in values.items()]
    more = [f"and {len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
    return ", ".join([*named[:MOST_NAMED], *more])


def _stage(name: str) -> str:
    stage = name.partition("/")[0]
    return stage if stage in ("train", "val", "test") and "/" in name else ""


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
