"""The options of the group `data`, and the number of samples of each split."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, Literal

from lockstep.config_error import is_number, require
from lockstep.constraints import Constraint, NonNegative, NonNegativeInt, Positive, PositiveInt
from lockstep.progress import notice
from lockstep.schemas.coerce import unknown_key
from lockstep.schemas.target import KEY, BuiltIn, Target

BATCH_SIZE = 64
"""The global batch size if neither the plan nor the user's DataLoader has one."""


@dataclass(frozen=True)
class Digits(BuiltIn):
    path: ClassVar[str] = "lockstep.data.digits.load"
    name: Literal["digits"]
    val_size: NonNegativeInt
    test_size: PositiveInt
    images: ClassVar[bool] = True
    classes: ClassVar[int] = 10
    total: ClassVar[int] = 1797

    @property
    def train_samples(self) -> int:
        return self.total - self.val_size - self.test_size


@dataclass(frozen=True)
class MNIST(BuiltIn):
    path: ClassVar[str] = "lockstep.data.mnist.load"
    name: Literal["mnist"]
    root: str
    samples: PositiveInt | None
    val_size: NonNegativeInt
    mean: float
    std: Positive
    images: ClassVar[bool] = True
    classes: ClassVar[int] = 10
    total: ClassVar[int] = 60_000

    @property
    def train_samples(self) -> int:
        return self.samples or self.total - self.val_size


@dataclass(frozen=True)
class Points(BuiltIn):
    path: ClassVar[str] = "lockstep.data.points.load"
    name: Literal["points"]
    samples: (
        Annotated[int, Constraint(lambda value: value >= 2, "it must be 2 or more", "1000, or null for seven points")]
        | None
    )
    images: ClassVar[bool] = False
    classes: ClassVar[int] = 2
    val_size: ClassVar[int] = 0

    @property
    def train_samples(self) -> int:
        return self.samples or 5


@dataclass(frozen=True)
class Line(BuiltIn):
    path: ClassVar[str] = "lockstep.data.line.load"
    name: Literal["line"]
    slope: float
    intercept: float
    noise: NonNegative
    samples: PositiveInt
    inputs: tuple[float, ...]
    val_size: NonNegativeInt
    predict: tuple[float, ...]
    images: ClassVar[bool] = False
    classes: ClassVar[int] = 0

    @property
    def train_samples(self) -> int:
        return len(self.inputs) or self.samples

    @property
    def call(self) -> dict[str, Any]:
        """Return the path and the arguments without `predict`, which is for the end of a run."""
        arguments = {**super().call, "samples": self.train_samples}
        del arguments["predict"]
        return arguments


@dataclass(frozen=True)
class RandomRegression(BuiltIn):
    path: ClassVar[str] = "lockstep.data.random_regression.load"
    name: Literal["random_regression"]
    features: PositiveInt
    outputs: PositiveInt
    noise: NonNegative
    samples: PositiveInt
    images: ClassVar[bool] = False
    classes: ClassVar[int] = 0
    val_size: ClassVar[int] = 0

    @property
    def train_samples(self) -> int:
        return self.samples


@dataclass(frozen=True)
class DataFacts:
    """Facts about a user's data, which is inspected before any rank starts.

    outputs: classes, or numbers of a target. shape: of a sample.
    parts: the shape of a sample's target if each element has a class of its own.
    """

    train_samples: int = 0
    val_size: int = 0
    test_size: int = 0
    classes: int = 0
    outputs: int = 0
    shape: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()

    @property
    def images(self) -> bool:
        return len(self.shape) == 3


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


@dataclass(frozen=True)
class LoaderDefaults:
    """Options of the user's DataLoader that the plan takes over. repeatable: whether the same seed repeats a stream."""

    batch_size: int = 0
    drop_last: bool = False
    repeatable: bool = True


PLANNED = {
    **dict.fromkeys(("dataset", "shuffle", "sampler", "batch_sampler", "worker_init_fn"), "nothing in its place"),
    **{"batch_size": "batch_size=…, of all devices together", "drop_last": "drop_last=true", "generator": "seed=…"},
}
"""Arguments of a DataLoader that would change the order of samples, and what to write instead."""


def _is_split(sizes: Any) -> bool:
    return isinstance(sizes, Mapping) and all(
        name in ("val", "test") and is_number(size) and size >= 0 and (isinstance(size, int) or 0 < size < 1)
        for name, size in sizes.items()
    )


Split = Annotated[
    dict[str, float], Constraint(_is_split, "it takes val and test, in samples or as a share below 1", "{val:0.1}")
]
LoaderOptions = Annotated[
    dict[str, Any],
    Constraint(lambda options: isinstance(options, Mapping), "it is a group of keys", "{num_workers:2}"),
]
SampleKey = Annotated[str, Constraint(lambda key: key != "", "it is a key of each sample", "image")]

SETTINGS = {
    "split": "split",
    "loader": "loader",
    "classes": "num_classes",
    "inputs": "input_key",
    "targets": "target_key",
}
"""Keys of a user's data beside `dataset`, or beside `train`, `val` and `test`, and their fields."""
FORMER_SETTINGS = {f"_{name}_": field for name, field in SETTINGS.items()}
"""Former names, which are still accepted, also beside a target's arguments."""


@dataclass(frozen=True)
class UserData(DataFacts, Target):
    """Datasets, or tensors.

    split: how much of a single data set validates and tests, in samples or as a share.
    loader: arguments of torch's DataLoader, for samples that are read one by one.
    num_classes: needed if neither the targets in a tensor nor the attribute `classes` of the Dataset give it.
    input_key, target_key: the keys of samples that are mappings, for a plain net.
    key: of the target on the command line.
    """

    split: Split = field(default_factory=dict)
    loader: LoaderOptions = field(default_factory=dict)
    num_classes: Annotated[int, Constraint(lambda count: count >= 2, "it must be 2 or more", "10")] | None = None
    input_key: SampleKey | None = None
    target_key: SampleKey | None = None
    key: str = "data"
    settings: ClassVar[dict[str, str]] = FORMER_SETTINGS

    def __post_init__(self) -> None:
        for name, value in self.loader.items():
            option = f"data.loader.{name}"
            require(name not in PLANNED, option, value, "the plan determines it", PLANNED.get(name, ""))
        fits = self.target_key is None or self.input_key is not None
        require(fits, "data.targets", self.target_key, "it needs the key of the inputs", "data.inputs=KEY beside it")

    @staticmethod
    def is_named_in(values: Mapping[str, Any]) -> bool:
        return not values.keys().isdisjoint((KEY, "dataset", "train"))

    @classmethod
    def from_values(cls, key: str, values: Mapping[str, Any]) -> "UserData":
        """Return the target at `dataset` or at the top; else a mapping of the targets at `train`, `val` and `test`.

        At the top, keys are arguments of a user's target; those of Lockstep's data sets have no names of settings.
        """
        is_flat = KEY in values and not str(values[KEY]).startswith("lockstep.")
        settings = FORMER_SETTINGS | ({} if is_flat else SETTINGS)
        for name in FORMER_SETTINGS.keys() & values.keys():
            hint = ", beside the target at data.dataset" if KEY in values else ""
            notice(f"{key}.{name} is now {key}.{name.strip('_')}{hint}")
        typed = cls.coerce_settings(key, values, settings)
        values = {name: value for name, value in values.items() if name not in settings}
        if "dataset" not in values:
            splits = values if KEY in values else {KEY: "builtins.dict", **values}
            path = values.get("train") if KEY not in values else values
            name = str(path.get(KEY) if isinstance(path, Mapping) else path).rpartition(".")[2]
            return replace(super().from_values(key, splits), name=name, **typed)
        target = values.pop("dataset")
        if values:
            name, value = next(iter(values.items()))
            raise unknown_key(f"{key}.{name}", value, [f"{key}.{setting}" for setting in SETTINGS])
        hint = f"{key}.dataset={{_target_:PATH}}"
        require(isinstance(target, Mapping) and KEY in target, f"{key}.dataset", target, "it is a target", hint)
        return replace(super().from_values(f"{key}.dataset", target), key=f"{key}.dataset", **typed)

    @property
    def as_loaders(self) -> "UserLoaders":
        """Return the same target, which turned out to be a LightningDataModule or IterableDatasets."""
        return UserLoaders(**{field.name: getattr(self, field.name) for field in fields(self)})


@dataclass(frozen=True)
class UserLoaders(Loaders, UserData):
    """A LightningDataModule, or IterableDatasets."""


@dataclass(frozen=True)
class ModelLoaders(Loaders):
    """The dataloaders of a LightningModule."""

    name: Literal["model"] = "model"
    inferred: ClassVar[tuple[str, ...]] = FACTS


Data = Digits | MNIST | Points | Line | RandomRegression | UserData | UserLoaders | ModelLoaders
