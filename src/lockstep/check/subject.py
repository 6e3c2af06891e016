"""What a check trains, and what it gets of that: all that the command and the ranks have in common, without torch."""

from dataclasses import dataclass
from typing import Any

from lockstep.check.comparison import Trace
from lockstep.plan.world import World

VAL_BATCHES = 10
BUDGET = 6.0
"""CPU seconds of a training's steps: about a twentieth of a check."""
Results = dict[str, list[Trace]]
"""The traces of all ranks by training; one with an `error` in place of steps has failed."""


@dataclass(frozen=True)
class Subject:
    """What is trained: calls of the module and the data, the global batch size, and the batches of each epoch.

    budget: CPU seconds that the steps of one training may take.
    """

    model: dict[str, Any]
    data: dict[str, Any]
    batch_size: int
    batches: int = 10
    seed: int = 0
    precision: str = "64-true"
    sync_batchnorm: bool = False
    budget: float = BUDGET


@dataclass(frozen=True)
class Work:
    """The input of the ranks. folder: for checkpoints, which all ranks see."""

    world: World
    subject: Subject
    folder: str
