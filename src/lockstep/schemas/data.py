"""The options of the group `data`, and the number of samples of each split."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, Literal

from lockstep.config_error import config_error, is_number, require
from lockstep.constraints import Constraint, NonNegative, NonNegativeInt, Positive, PositiveInt
from lockstep.progress import notice
from lockstep.schemas.coerce import unknown_key
from lockstep.schemas.target import KEY, BuiltIn, Target

BATCH_SIZE = 64  # the global batch size if neither the plan nor the user's DataLoader has one


class BuiltInData(BuiltIn):
    """Facts about built-in data. total: how many samples there are if the options name no number."""

    val_size: int
    shape: ClassVar[tuple[int, ...]] = ()
    classes: ClassVar[int] = 0
    parts: ClassVar[tuple[int, ...]] = ()
    total: ClassVar[int] = 0
    dtype: ClassVar[str] = "float32"

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.classes)))

    @property
    def train_samples(self) -> int:
        return getattr(self, "samples", None) or self.total - self.val_size - getattr(self, "test_size", 0)


class HandwrittenDigits(BuiltInData):
    shape: ClassVar[tuple[int, ...]] = (1, 28, 28)
    classes: ClassVar[int] = 10
    outputs: ClassVar[int] = 10
    dtype: ClassVar[str] = "uint8"


@dataclass(frozen=True)
class Digits(HandwrittenDigits):
    path: ClassVar[str] = "lockstep.data.digits.load"
    name: Literal["digits"]
    val_size: NonNegativeInt
    test_size: PositiveInt
    total: ClassVar[int] = 1797


@dataclass(frozen=True)
class MNIST(HandwrittenDigits):
    path: ClassVar[str] = "lockstep.data.mnist.load"
    name: Literal["mnist"]
    root: str
    samples: PositiveInt | None
    val_size: NonNegativeInt
    mean: float
    std: Positive
    total: ClassVar[int] = 60_000


@dataclass(frozen=True)
class Points(BuiltInData):
    path: ClassVar[str] = "lockstep.data.points.load"
    name: Literal["points"]
    samples: Annotated[int, Constraint(lambda value: value >= 2, "it must be 2 or more", "1000")] | None
    val_size: ClassVar[int] = 0  # type: ignore[misc]
    classes: ClassVar[int] = 2
    total: ClassVar[int] = 5


@dataclass(frozen=True)
class Line(BuiltInData):
    path: ClassVar[str] = "lockstep.data.line.load"
    name: Literal["line"]
    slope: float
    intercept: float
    noise: NonNegative
    samples: PositiveInt
    inputs: tuple[float, ...]
    val_size: NonNegativeInt
    predict: tuple[float, ...]

    @property
    def train_samples(self) -> int:
        return len(self.inputs) or self.samples


@dataclass(frozen=True)
class RandomRegression(BuiltInData):
    path: ClassVar[str] = "lockstep.data.random_regression.load"
    name: Literal["random_regression"]
    features: PositiveInt
    outputs: PositiveInt
    noise: NonNegative
    samples: PositiveInt
    val_size: ClassVar[int] = 0  # type: ignore[misc]


@dataclass(frozen=True)
class DataFacts:
    """Facts about a user's data, which is inspected before any rank starts.

    outputs: classes, or numbers of a target. shape: of a sample.
    parts: the shape of a sample's target if each element has a class of its own.
    class_names: of the Dataset's attribute `classes`, if it has one.
    dtype: of the inputs, by torch's name.
    """

    train_samples: int = 0
    val_size: int = 0
    test_size: int = 0
    classes: int = 0
    outputs: int = 0
    shape: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()
    class_names: tuple[str, ...] = ()
    dtype: str = "float32"

    @property
    def labels(self) -> tuple[str, ...]:
        return self.class_names or tuple(map(str, range(self.classes)))


@dataclass(frozen=True)
class Loaders(DataFacts):
    """Facts about a user's DataLoaders.

    train_batches: batches of an epoch, 0 if unknown. regular: whether all but the last have the same size.
    val_batch_sizes, test_batch_sizes: the batch size of each loader, 0 if it varies.
    """

    train_batches: int = 0
    regular: bool = True
    val_batch_sizes: tuple[int, ...] = ()
    test_batch_sizes: tuple[int, ...] = ()


FACTS = tuple(fact.name for fact in fields(Loaders))

PLANNED = {"dataset", "shuffle", "sampler", "batch_sampler", "worker_init_fn", "batch_size", "drop_last", "generator"}
"""Arguments of a DataLoader that would change the order of samples."""


def _is_split(sizes: Any) -> bool:
    return isinstance(sizes, Mapping) and all(
        name in ("val", "test") and is_number(size) and size >= 0 and (isinstance(size, int) or 0 < size < 1)
        for name, size in sizes.items()
    )


Split = Annotated[
    dict[str, float], Constraint(_is_split, "it takes val and test, in samples or as a share below 1", "{val:0.1}")
]
LoaderOptions = Annotated[
    dict[str, Any], Constraint(lambda options: isinstance(options, Mapping), "it is a group of keys", "{num_workers:2}")
]
SampleKey = Annotated[str, Constraint(lambda key: key != "", "it is a key of each sample", "image")]


@dataclass(frozen=True)
class UserData(DataFacts, Target):
    """Datasets, or tensors.

    split: how much of a single data set validates and tests, in samples or as a share.
    loader: arguments of torch's DataLoader, for samples that are read one by one.
    num_classes: needed if neither the targets in a tensor nor the attribute `classes` of the Dataset give it.
    input_key, target_key: the keys of samples that are mappings, for a plain net.
    """

    split: Split = field(default_factory=dict)
    loader: LoaderOptions = field(default_factory=dict)
    num_classes: Annotated[int, Constraint(lambda count: count >= 2, "it must be 2 or more", "10")] | None = None
    input_key: SampleKey | None = None
    target_key: SampleKey | None = None
    marks: ClassVar[tuple[str, ...]] = (KEY, "dataset", "train")
    files: ClassVar[dict[str, tuple[str, str]]] = {
        "lockstep.data.image_folder.image_folder": ("root", "data.root=FOLDER, with a folder of images for each class"),
        "lockstep.data.npz.npz": ("file", "data.file=FILE.npz, with arrays x and y"),
        "lockstep.data.text.text": ("file", "data.file=FILE.txt, or null"),
    }
    settings: ClassVar[dict[str, str]] = {
        **{"split": "split", "loader": "loader"},
        **{"classes": "num_classes", "inputs": "input_key", "targets": "target_key"},
    }

    def __post_init__(self) -> None:
        for name in self.loader.keys() & PLANNED:
            hint = "nothing in its place, or batch_size=…, drop_last=true or seed=… of the run"
            raise config_error(f"data.loader.{name}", self.loader[name], "the run determines it", hint)
        fits = self.target_key is None or self.input_key is not None
        require(fits, "data.targets", self.target_key, "it needs the key of the inputs", "data.inputs=KEY beside it")

    @property
    def is_built_in(self) -> bool:
        """Whether the target is one of Lockstep's data sets, whose bytes are tensors in memory."""
        return self._target_.startswith("lockstep.")

    def require_files(self) -> None:
        """Raise if the folder or the file of one of Lockstep's data sets does not exist."""
        name, hint = self.files.get(self._target_, ("", ""))
        path = self.arguments.get(name)
        exists = path is None or os.path.exists(str(path))  # noqa: PTH110  # pathlib's may raise
        require(exists, f"{self.key}.{name}", path, "there is no such path", hint)

    @classmethod
    def from_values(cls, key: str, values: Mapping[str, Any]) -> "UserData":
        """Return the target at `dataset` or at the top; else a mapping of the targets at `train`, `val` and `test`.

        At the top, keys are arguments of a user's target; those of Lockstep's data sets have no names of settings.
        These had underscores before: `_split_`.
        """
        is_flat = KEY in values and not str(values[KEY]).startswith("lockstep.")
        former = {f"_{name}_": name for name in cls.settings if f"_{name}_" in values}
        for old, name in former.items():
            notice(f"{key}.{old}: write {key}.{name}, beside {key}.dataset; the old name goes with the next version")
        settings = {name: values[old] for old, name in former.items()}
        typed = cls.coerce_settings(key, settings if is_flat else {**values, **settings})
        left_out = former if is_flat else {*former, *cls.settings}
        target: Any = {name: value for name, value in values.items() if name not in left_out}
        if "dataset" in target and not is_flat:
            for name in target.keys() - {"dataset"}:
                raise unknown_key(f"{key}.{name}", target[name], [f"{key}.{setting}" for setting in cls.settings])
            key, target = f"{key}.dataset", target["dataset"]
            fits = isinstance(target, Mapping) and KEY in target
            require(fits, key, target, "it is a target", f"{key}={{_target_:PATH}}")
        train = target if KEY in target else target["train"]
        path = train.get(KEY) if isinstance(train, Mapping) else train
        arguments = {name: value for name, value in target.items() if name != KEY}
        name = str(path).rpartition(".")[2]
        return cls(name=name, _target_=target.get(KEY, "builtins.dict"), arguments=arguments, key=key, **typed)


@dataclass(frozen=True)
class UserLoaders(Loaders, UserData):
    """A LightningDataModule, or IterableDatasets."""


@dataclass(frozen=True)
class ModelLoaders(Loaders):
    """The dataloaders of a LightningModule."""

    name: Literal["model"] = "model"
    inferred: ClassVar[tuple[str, ...]] = FACTS


Data = Digits | MNIST | Points | Line | RandomRegression | UserData | UserLoaders | ModelLoaders
