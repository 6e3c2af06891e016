"""Which checkpoints are saved, and how often."""

from dataclasses import dataclass

from lockstep.config_error import require


@dataclass(frozen=True)
class Checkpoint:
    """Written after each epoch, and after every `every_n_steps` optimizer steps.

    `monitor`: the metric that best.ckpt is best by; None: validation accuracy, or loss where nothing is classed.
    """

    monitor: str | None
    every_n_steps: int | None

    def __post_init__(self) -> None:
        key, every = "checkpoint.every_n_steps", self.every_n_steps
        require(every is None or every >= 1, key, every, "it must be 1 or more", f"{key}=100, say, or null")
