"""What each logger does, on rank 0."""

from collections.abc import Mapping, Sequence
from typing import Any

Value = str | int | float
"""Of a hyper-parameter."""


Layout = Mapping[str, Mapping[str, Sequence[str]]]
"""By category and chart: the names of curves, as regular expressions."""


class Logger:
    """The base of all: it does nothing."""

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """A point on the curve of each value, at an optimizer step."""

    def log_hparams(self, hparams: Mapping[str, Value]) -> None:
        """Hyper-parameters that come up during the run."""

    def log_text(self, name: str, text: str) -> None:
        """A page of Markdown about the whole run."""

    def log_image(self, name: str, picture: Any, step: int) -> None:
        """Bytes (height, width, 3)."""

    def log_pr_curve(self, name: str, labels: Any, scores: Any, step: int) -> None:
        """Of true labels (n,) and probabilities (n,)."""

    def log_histogram(self, name: str, values: Any, step: int) -> None:
        """Of a tensor."""

    def log_graph(self, net: Any, inputs: Any) -> None:
        """A net, as a batch goes through it."""

    def log_layout(self, layout: Layout) -> None:
        """Which curves share a chart."""

    def flush(self) -> None:
        """Onto the disk."""

    def close(self, hparams: Mapping[str, Value], results: Mapping[str, float]) -> None:
        """The run is over: all of its hyper-parameters, and its results."""

    def fail(self) -> None:
        """The run ends by an error."""
        self.flush()
