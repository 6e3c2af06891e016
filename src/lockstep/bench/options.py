"""The options of the bench, and the workloads that they choose."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from lockstep.config_error import config_error, option_error, require
from lockstep.data.idx import find
from lockstep.data.mnist import FILES

ROUNDS = {False: (3, 3), True: (2, 1)}
"""By `quick`: how often fast and slow variants take their turn."""


@dataclass(frozen=True)
class BenchOptions:
    """The keys of the command."""

    quick: bool = False
    only: str = "all"
    rounds: int | None = None
    root: str = "data"

    def __post_init__(self) -> None:
        if self.rounds is not None:
            require(self.rounds >= 1, "rounds", self.rounds, "it must be 1 or more", "rounds=3, say")

    @property
    def fast_and_slow_rounds(self) -> tuple[int, int]:
        return (self.rounds, self.rounds) if self.rounds else ROUNDS[self.quick]

    def names(self, known: Collection[str]) -> list[str]:
        """The chosen workloads, in the order of the table."""
        if self.only == "all":
            return [*known]
        chosen = self.only.split(",")
        for name in chosen:
            if name not in known:
                raise option_error("only", name, "there is no such workload", known)
        return [name for name in known if name in chosen]

    def missing_file(self) -> str:
        """The first of MNIST's files that is not below `root`."""
        root = Path(self.root)
        try:
            return next((file.name for file in FILES if find(root, file) is None), "")
        except OSError as error:
            why = f"it cannot be read ({error.strerror})"
            raise config_error("root", self.root, why, "root=FOLDER with MNIST/raw in it") from None
