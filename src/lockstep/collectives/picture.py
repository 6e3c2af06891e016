"""The picture of the benchmark: time over size for each primitive, measured points and the fitted line."""

import logging
import math
from collections.abc import Sequence
from pathlib import Path

from lockstep.collectives.bench import Timing
from lockstep.collectives.fit import Fit

COLUMNS = 4


def draw(timings: Sequence[Timing], lines: Sequence[Fit], path: Path) -> None:
    """Write the picture, as a PNG file: a panel a primitive, on common logarithmic axes."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # its first import tells of building a font cache
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = [line for line in lines if any(timing.size for timing in timings if timing.primitive == line.primitive)]
    height = max(1, math.ceil(len(drawn) / COLUMNS))
    figure = Figure(figsize=(14, 3 * height), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(height, COLUMNS, sharex=True, sharey=True, squeeze=False).flatten()
    for panel, line in zip(panels, drawn, strict=False):
        own = [timing for timing in timings if timing.primitive == line.primitive]
        sizes = [timing.size for timing in own]
        panel.loglog(sizes, [1e6 * timing.seconds for timing in own], "o", markersize=4, label="measured")
        panel.loglog(sizes, [1e6 * line.seconds(size) for size in sizes], "-", label=label(line))
        panel.set_title(line.primitive, fontsize="medium")
        panel.legend(fontsize="x-small")
    for empty in panels[len(drawn) :]:
        empty.set_visible(False)
    figure.supxlabel("bytes")
    figure.supylabel("microseconds")
    figure.savefig(path, dpi=110)


def label(line: Fit) -> str:
    bandwidth, _ = line.bandwidths
    return f"{1e6 * line.alpha:.3g} µs" + ("" if bandwidth is None else f" + n / {bandwidth:.3g} GB/s")
