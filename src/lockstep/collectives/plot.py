"""The plot of the benchmark: time over message size for each primitive, measured points and the fitted line."""

import math
from collections.abc import Sequence
from pathlib import Path

from lockstep.collectives.fit import Fit
from lockstep.collectives.timing import Timing
from lockstep.plot import saved_figure
from lockstep.text_table import figures

COLUMNS = 4


def draw(timings: Sequence[Timing], lines: Sequence[Fit], path: Path) -> None:
    """Write a PNG file: a panel for each primitive that moves bytes, on common logarithmic axes."""
    measured = {line: [one for one in timings if one.primitive == line.primitive and one.bytes] for line in lines}
    drawn = [line for line in lines if measured[line]]
    rows = max(1, math.ceil(len(drawn) / COLUMNS))
    with saved_figure(path, width=14, height=3.2 * rows) as figure:
        panels = figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False).flatten()
        for panel, line in zip(panels, drawn, strict=False):
            sizes = [one.bytes for one in measured[line]]
            panel.loglog(sizes, [1e6 * one.seconds for one in measured[line]], "o", markersize=4, label="measured")
            panel.loglog(sizes, [1e6 * line.seconds(size) for size in sizes], label=label(line))
            panel.set_title(line.primitive, fontsize="medium")
            panel.tick_params(labelbottom=True)
            panel.legend(fontsize="x-small", loc="upper left")
        for empty in panels[len(drawn) :]:
            empty.set_visible(False)
        figure.supxlabel("message size n in bytes")
        figure.supylabel("time t in µs, the slowest rank's")


def label(line: Fit) -> str:
    slope = f" + n / ({figures(line.algorithm_GB_per_s)} GB/s)" if line.algorithm_GB_per_s else ""
    return f"fit: {figures(line.alpha_us)} µs{slope}"
