"""Which checkpoints are kept."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Checkpoint:
    """`monitor`: the metric that best.ckpt is best by; None: validation accuracy, or loss where nothing is classed."""

    monitor: str | None
