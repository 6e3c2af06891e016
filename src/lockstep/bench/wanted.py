"""What the bench is asked for: its keys, and the workloads that come of them."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from lockstep.config_error import config_error, option_error, require
from lockstep.data.idx import find
from lockstep.data.mnist import FILES

ROUNDS = {False: (3, 3), True: (2, 1)}
"""By `quick`: how often cheap and dear ways take their turn."""


@dataclass(frozen=True)
class Wanted:
    """The keys of the command."""

    quick: bool = False
    only: str = "all"
    rounds: int | None = None
    root: str = "data"

    def __post_init__(self) -> None:
        if self.rounds is not None:
            require(self.rounds >= 1, "rounds", self.rounds, "it must be 1 or more", "rounds=3, say")

    @property
    def cheap_and_dear(self) -> tuple[int, int]:
        return (self.rounds, self.rounds) if self.rounds else ROUNDS[self.quick]

    def names(self, known: Collection[str]) -> list[str]:
        """The workloads that are wanted, in the order of the table."""
        if self.only == "all":
            return [*known]
        given = self.only.split(",")
        for name in given:
            if name not in known:
                raise option_error("only", name, "there is no such workload", known)
        return [name for name in known if name in given]

    def missing(self) -> str:
        """The first of MNIST's files that is not below `root`."""
        root = Path(self.root)
        try:
            return next((file.name for file in FILES if find(root, file) is None), "")
        except OSError as error:
            why = f"it cannot be read ({error.strerror})"
            raise config_error("root", self.root, why, "root=FOLDER with MNIST/raw in it") from None
