"""What each logger does, on rank 0."""

from collections.abc import Mapping

HyperParameter = str | int | float
"""Of a hyper-parameter."""


class Logger:
    """The base of all: it does nothing."""

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """A point on the curve of each value, at an optimizer step."""

    def flush(self) -> None:
        """Onto the disk."""

    def close(self, hparams: Mapping[str, HyperParameter], results: Mapping[str, float]) -> None:
        """The run is over: all of its hyper-parameters, and its results."""

    def fail(self) -> None:
        """The run ends by an error."""
        self.flush()
