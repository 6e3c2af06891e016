"""The data sets: `prepare` fetches and checks files once, `load` returns the splits."""

from dataclasses import replace
from typing import TYPE_CHECKING

from lockstep.schemas.data import MNIST, Data
from lockstep.schemas.target import BuiltIn
from lockstep.targets.locate import create

if TYPE_CHECKING:
    from lockstep.data.samples import Splits
    from lockstep.schemas.task import Samples


def prepare(choice: Data) -> None:
    """Fetch and check the files of a data set. Imports no torch unless it downloads, so that errors come at once."""
    if isinstance(choice, MNIST):
        from lockstep.data import mnist

        mnist.prepare(choice.root)


def load(choice: Data, seed: int = 0, samples: "Samples" = "pairs") -> "Splits":
    """Return the splits of built-in data, or of a user's, created under this seed, for a task that takes `samples`."""
    if isinstance(choice, BuiltIn):
        splits: Splits = create("data", choice.call)
        return replace(splits, samples=samples)
    from lockstep.data import user_data

    return user_data.load(choice, seed, samples)  # type: ignore[arg-type]
