"""The data sets: `prepare` fetches and checks files once, `load` gives the splits."""

from dataclasses import replace
from typing import TYPE_CHECKING

from lockstep import schemas
from lockstep.config_error import require
from lockstep.schemas.target import BuiltIn
from lockstep.schemas.task import Samples
from lockstep.targets import create

if TYPE_CHECKING:
    from lockstep.data.samples import SampleData
    from lockstep.data.tensors import TensorData


def prepare(choice: schemas.Data) -> None:
    """Get the files of this data set onto this machine, and check them; raises ConfigError where that fails.

    Imports no torch unless it has to download, so that a bad path is refused at once.
    """
    if isinstance(choice, schemas.MNIST):
        from lockstep.data import mnist

        mnist.prepare(choice.root)


def load_splits(choice: schemas.Data, seed: int, samples: Samples) -> "TensorData | SampleData":
    """The splits, built in or the user's own, under this seed, of what the task takes for samples.

    Raises:
        ConfigError: a split has another size than the plan says.
    """
    if not isinstance(choice, schemas.OwnData):
        return replace(load(choice), own_targets=samples == "inputs")
    from lockstep.data import own

    found = own.load(choice, seed, samples)
    _require_sizes(choice, found)
    return found


def load(choice: schemas.Data) -> "TensorData":
    """The splits of a built-in data set. What is random in them is fixed, whatever the run's seed.

    Raises:
        ConfigError: a split has another size than the schema says.
    """
    if not isinstance(choice, BuiltIn):
        raise TypeError("the user's own data is loaded by load_splits, and their loaders are their own")
    tensors: TensorData = create("data", choice.call)
    _require_sizes(choice, tensors)
    return tensors


def _require_sizes(choice: schemas.Data, found: "TensorData | SampleData") -> None:
    """Steps, schedules and the weight of each sample in its gradient are computed from the sizes of the schema."""
    declared = {
        "train": ("train_samples", choice.train_samples, found.train),
        "validation": ("val_size", choice.val_size, found.val),
        "test": ("test_size", getattr(choice, "test_size", len(found.test)), found.test),
    }
    for name, (field, count, split) in declared.items():
        why = f"its {name} split holds {len(split)} samples, and {type(choice).__name__}.{field} says {count}"
        instead = f"what is loaded into {field}, in lockstep/schemas/data.py"
        require(len(split) == count, "data", choice.name, why, instead)
