"""The data sets: `prepare` fetches and checks files once, `load` returns the splits."""

from dataclasses import replace
from typing import TYPE_CHECKING

from lockstep.config_error import require
from lockstep.schemas.data import MNIST, Data
from lockstep.schemas.target import BuiltIn
from lockstep.targets.locate import create

if TYPE_CHECKING:
    from lockstep.data.samples import SampleData
    from lockstep.data.tensors import TensorData
    from lockstep.schemas.task import Samples


def prepare(choice: Data) -> None:
    """Fetch and check the files of a data set. Imports no torch unless it downloads, so that errors come at once.

    Raises:
        ConfigError: they cannot be fetched, or are damaged.
    """
    if isinstance(choice, MNIST):
        from lockstep.data import mnist

        mnist.prepare(choice.root)


def load_splits(choice: Data, seed: int, samples: "Samples") -> "TensorData | SampleData":
    """Return the splits of built-in data, or of a user's, created under this seed, for a task that takes `samples`.

    Raises:
        ConfigError: a split has another size than the plan says.
    """
    if isinstance(choice, BuiltIn):
        return replace(load(choice), reconstructs=samples == "inputs")
    from lockstep.data import user_data

    splits = user_data.load(choice, seed, samples)  # type: ignore[arg-type]
    _require_sizes(choice, splits)
    return splits


def load(choice: Data) -> "TensorData":
    """Return the splits of a built-in data set, whose random numbers do not depend on the run's seed.

    Raises:
        ConfigError: a split has another size than the schema says.
    """
    assert isinstance(choice, BuiltIn)
    tensors: TensorData = create("data", choice.call)
    _require_sizes(choice, tensors)
    return tensors


def _require_sizes(choice: Data, splits: "TensorData | SampleData") -> None:
    """Check the sizes from which steps, schedules and the weight of each sample in its gradient are computed."""
    names = {"train": "train_samples", "validation": "val_size", "test": "test_size"}
    for (name, field), split in zip(names.items(), (splits.train, splits.val, splits.test), strict=True):
        count = getattr(choice, field, len(split))
        reason = f"its {name} split holds {len(split)} samples, and {type(choice).__name__}.{field} says {count}"
        hint = f"what is loaded into {field}, in lockstep/schemas/data.py"
        require(len(split) == count, "data", choice.name, reason, hint)
