"""The data sets, held as tensors in memory: `prepare` fetches and checks files once, `load` gives the tensors."""

from typing import TYPE_CHECKING

from lockstep import choices
from lockstep.data import mnist

if TYPE_CHECKING:
    from lockstep.data.tensors import TensorData


def prepare(choice: choices.Data) -> None:
    """Have the files of this data set on this machine, whole and checked; raises Refusal where that cannot be.

    Imports no torch unless it has to download, so that a bad path is refused at once.
    """
    if isinstance(choice, choices.MNIST):
        mnist.prepare(choice.root)


def load(choice: choices.Data) -> "TensorData":
    """The splits as tensors. What is random in them (order of splits, noise) is fixed, whatever the run's seed."""
    from lockstep.data import digits, line, points, rows

    match choice:
        case choices.Digits():
            return digits.load(choice.val_size, choice.test_size)
        case choices.MNIST():
            return mnist.load(choice.root, choice.val_size, choice.mean, choice.std, choice.train_samples)
        case choices.Points():
            return points.load(choice.samples)
        case choices.Line():
            own = (choice.slope, choice.intercept, choice.noise, choice.train_samples, choice.val_size)
            return line.load(*own, choice.inputs)
        case choices.Rows():
            return rows.load(choice.features, choice.outputs, choice.noise, choice.samples)
