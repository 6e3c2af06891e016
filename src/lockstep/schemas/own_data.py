"""Data of the user's own: Datasets, or loaders of a LightningDataModule or a LightningModule."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from lockstep.schemas.target import KEY, Target

BATCH_SIZE = 64
"""Where neither the plan nor a DataLoader of the user's says how many samples a global batch has."""

FOUND = (
    *("train_samples", "val_size", "test_size", "classes", "outputs", "shape", "parts"),
    *("train_batches", "regular", "val_batch_sizes", "test_batch_sizes"),
)
"""What the data says of itself: nothing that anybody types."""

OURS = ("_split_", "_loader_", "_classes_", "_inputs_", "_targets_")
"""Keys which are not the target's arguments."""


@dataclass(frozen=True)
class Sizes:
    """Samples of each split, and classes."""

    train_samples: int = 0
    val_size: int = 0
    test_size: int = 0
    classes: int = 0


@dataclass(frozen=True)
class OwnSamples(Sizes, Target):
    """Of the user's own, in whatever form. What it comes to is asked of the data itself, before any rank starts.

    _loader_: arguments of torch's DataLoader, where samples are made one by one.
    _classes_: where neither targets in a tensor nor `classes` of the Dataset tell it.
    _inputs_, _targets_: for a plain net, keys of a sample that is a mapping.
    parts: the shape of a sample's target, where each part of a sample has a class.
    """

    _loader_: dict[str, Any] = field(default_factory=dict)
    _classes_: int | None = None
    _inputs_: str | None = None
    _targets_: str | None = None
    outputs: int = 0
    shape: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()

    @property
    def loader(self) -> dict[str, Any]:
        return self._loader_

    @property
    def class_count(self) -> int | None:
        return self._classes_

    @property
    def input_key(self) -> str | None:
        return self._inputs_

    @property
    def target_key(self) -> str | None:
        return self._targets_

    @property
    def images(self) -> bool:
        return len(self.shape) == 3


@dataclass(frozen=True)
class OwnData(OwnSamples):
    """Datasets, or arrays.

    _split_: how much of one data set validates and tests, in samples or as a share, where the target makes only one.
    """

    _split_: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def named_in(values: Mapping[str, Any]) -> bool:
        return KEY in values or "train" in values

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Keys between underlines are ours, all else the target's; without a target, three of splits."""
        from lockstep.schemas.data_keys import checked

        arguments = {name: value for name, value in values.items() if name not in OURS}
        own = super().of({KEY: "builtins.dict", **arguments})
        if KEY not in values and isinstance(train := values.get("train"), Mapping):
            own["name"] = str(train.get(KEY)).rpartition(".")[2]
        return own | checked({name: values.get(name) for name in OURS})

    @property
    def split(self) -> dict[str, float]:
        return self._split_

    @property
    def as_loaders(self) -> "OwnLoaders":
        """The same where it turns out to be a LightningDataModule, or IterableDatasets."""
        return OwnLoaders(**{each.name: getattr(self, each.name) for each in fields(OwnSamples)})


@dataclass(frozen=True)
class Loaders(Sizes):
    """Data that comes in DataLoaders of the user's own. What they come to is asked of them before any rank starts.

    train_batches: of an epoch, 0 where nobody knows; `regular`: all but the last have one size.
    val_batch_sizes, test_batch_sizes: of each loader as one process has it, 0 of one whose batches vary.
    """

    train_batches: int = 0
    regular: bool = True
    val_batch_sizes: tuple[int, ...] = ()
    test_batch_sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class OwnLoaders(Loaders, OwnSamples):
    """A LightningDataModule, or IterableDatasets."""


@dataclass(frozen=True)
class ModelLoaders(Loaders):
    """The dataloaders that a LightningModule has itself."""

    name: Literal["model"] = "model"
    images: ClassVar[bool] = False
    inferred: ClassVar[tuple[str, ...]] = FOUND
