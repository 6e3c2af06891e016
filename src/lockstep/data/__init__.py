"""The data sets, held as tensors in memory: `prepare` fetches and checks files once, `load` gives the tensors."""

from typing import TYPE_CHECKING

from lockstep import choices
from lockstep.data import mnist
from lockstep.refusal import require

if TYPE_CHECKING:
    from lockstep.data.tensors import TensorData


def prepare(choice: choices.Data) -> None:
    """Have the files of this data set on this machine, whole and checked; raises Refusal where that cannot be.

    Imports no torch unless it has to download, so that a bad path is refused at once.
    """
    if isinstance(choice, choices.MNIST):
        mnist.prepare(choice.root)


def load(choice: choices.Data) -> "TensorData":
    """The splits as tensors. What is random in them (order of splits, noise) is fixed, whatever the run's seed.

    Raises:
        Refusal: a split holds more or fewer samples than the choice says.
    """
    tensors = _loaded(choice)
    _require_sizes(choice, tensors)
    return tensors


def _loaded(choice: choices.Data) -> "TensorData":
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


def _require_sizes(choice: choices.Data, tensors: "TensorData") -> None:
    """Steps, schedules and the weight of each sample in its gradient come from what the choice says."""
    said = {
        "train": ("train_samples", choice.train_samples, tensors.train),
        "validation": ("val_size", choice.val_size, tensors.val),
        "test": ("test_size", getattr(choice, "test_size", len(tensors.test)), tensors.test),
    }
    for name, (field, count, split) in said.items():
        why = f"its {name} split holds {len(split)} samples, and {type(choice).__name__}.{field} says {count}"
        instead = f"what is loaded into {field}, in lockstep/choices/data.py"
        require(len(split) == count, "data", choice.name, why, instead)
