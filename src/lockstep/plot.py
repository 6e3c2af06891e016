"""A figure that is drawn without a display and saved as a PNG file."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextmanager
def saved_figure(path: Path, width: float, height: float) -> Iterator["Figure"]:
    """A figure of so many inches; it is written to `path` when the block ends."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # the first import logs that it builds a font cache
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    yield figure
    figure.savefig(path, dpi=110)
