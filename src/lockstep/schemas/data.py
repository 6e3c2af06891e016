"""Which data set, and how many samples of it train, validate and test."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from lockstep.config_error import config_error, not_negative, option_error, positive, require
from lockstep.schemas.coerce import FOUND as FOUND_LATER
from lockstep.schemas.coerce import coerce_value
from lockstep.schemas.target import KEY, Target


@dataclass(frozen=True)
class Digits:
    name: Literal["digits"]
    val_size: int
    test_size: int
    images: ClassVar[bool] = True
    classes: ClassVar[int] = 10
    total: ClassVar[int] = 1797

    def __post_init__(self) -> None:
        not_negative("data.val_size", self.val_size)
        require(self.test_size > 0, "data.test_size", self.test_size, "it must be 1 or more", "data.test_size=360")
        spare = self.total - self.test_size
        why = f"it leaves nothing of the {self.total} digits to train on"
        require(spare > 0, "data.test_size", self.test_size, why, "data.test_size=360")
        why = f"with data.test_size={self.test_size} {why}"
        require(self.val_size < spare, "data.val_size", self.val_size, why, f"data.val_size={spare // 8}")

    @property
    def train_samples(self) -> int:
        return self.total - self.val_size - self.test_size


@dataclass(frozen=True)
class MNIST:
    name: Literal["mnist"]
    root: str
    samples: int | None
    val_size: int
    mean: float
    std: float
    images: ClassVar[bool] = True
    classes: ClassVar[int] = 10
    total: ClassVar[int] = 60_000

    def __post_init__(self) -> None:
        not_negative("data.val_size", self.val_size)
        positive("data.std", self.std)
        why = f"it leaves nothing of the {self.total} images to train on"
        require(self.val_size < self.total, "data.val_size", self.val_size, why, "data.val_size=5000")
        if self.samples is not None:
            most = self.total - self.val_size
            why, instead = f"with data.val_size={self.val_size} there are 1 to {most}", f"data.samples={most}"
            require(0 < self.samples <= most, "data.samples", self.samples, why, instead)

    @property
    def train_samples(self) -> int:
        return self.samples or self.total - self.val_size


@dataclass(frozen=True)
class Points:
    name: Literal["points"]
    samples: int | None
    images: ClassVar[bool] = False
    classes: ClassVar[int] = 2
    val_size: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if self.samples is not None:
            why, instead = "it must be 2 or more", "data.samples=1000, or data.samples=null for the seven points"
            require(self.samples >= 2, "data.samples", self.samples, why, instead)

    @property
    def train_samples(self) -> int:
        return self.samples or 5


@dataclass(frozen=True)
class Line:
    name: Literal["line"]
    slope: float
    intercept: float
    noise: float
    samples: int
    inputs: tuple[float, ...]
    val_size: int
    predict: tuple[float, ...]
    images: ClassVar[bool] = False
    classes: ClassVar[int] = 0

    def __post_init__(self) -> None:
        not_negative("data.noise", self.noise)
        not_negative("data.val_size", self.val_size)
        require(self.samples > 0, "data.samples", self.samples, "it must be 1 or more", "data.samples=10000")

    @property
    def train_samples(self) -> int:
        return len(self.inputs) or self.samples


@dataclass(frozen=True)
class RandomRegression:
    name: Literal["random_regression"]
    features: int
    outputs: int
    noise: float
    samples: int
    images: ClassVar[bool] = False
    classes: ClassVar[int] = 0
    val_size: ClassVar[int] = 0

    def __post_init__(self) -> None:
        not_negative("data.noise", self.noise)
        for key, instead in (("features", 5), ("outputs", 2), ("samples", 90)):
            value = getattr(self, key)
            require(value > 0, f"data.{key}", value, "it must be 1 or more", f"data.{key}={instead}")

    @property
    def train_samples(self) -> int:
        return self.samples


BATCH_SIZE = 64
"""Where neither the plan nor a DataLoader of the user's says how many samples a global batch has."""

FOUND = (
    *("train_samples", "val_size", "test_size", "classes", "outputs", "shape", "parts"),
    *("train_batches", "regular"),
)
"""What the data says of itself: nothing that anybody types."""

PLANNED = {
    "dataset": "nothing: _target_ says it",
    "batch_size": "batch_size=…, of all devices together",
    "shuffle": "nothing: training data is shuffled by the seed, the rest is not",
    "drop_last": "drop_last=true",
    "sampler": "nothing: the plan says which rank takes which sample",
    "batch_sampler": "nothing: the plan says which rank takes which sample",
    "generator": "seed=…",
    "worker_init_fn": "nothing: each sample is made under a seed of its own",
}
"""Arguments of a DataLoader that would break the order of samples, and what to write for each."""


LOADER: dict[str, type] = {
    **{"num_workers": int, "prefetch_factor": int, "timeout": float},
    **{"pin_memory": bool, "persistent_workers": bool, "in_order": bool},
}
"""Arguments of a DataLoader that are plain values."""

CONTEXTS = ("fork", "forkserver", "spawn")


@dataclass(frozen=True)
class OwnData(Target):
    """Data of the user's own. What it comes to is asked of the data itself, before any rank starts.

    _split_: how much of one data set validates and tests, in samples or as a share, where the target makes only one.
    _loader_: arguments of torch's DataLoader, where samples are made one by one.
    _classes_: where neither targets in a tensor nor `classes` of the Dataset tell it.
    parts: the shape of a sample's target, where each part of a sample has a class.
    """

    _split_: dict[str, float]
    _loader_: dict[str, Any]
    _classes_: int | None
    train_samples: int = 0
    val_size: int = 0
    test_size: int = 0
    classes: int = 0
    outputs: int = 0
    shape: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()

    @staticmethod
    def named_in(values: Mapping[str, Any]) -> bool:
        return KEY in values or "train" in values

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """`_split_`, `_loader_` and `_classes_` are ours, all else the target's; without a target, three of splits."""
        values = dict(values)
        own = {name: values.pop(f"_{name}_", None) for name in ("split", "loader", "classes")}
        fields = super().of(values) if KEY in values else {**super().of({KEY: "builtins.dict", **values})}
        if KEY not in values and isinstance(train := values.get("train"), Mapping):
            fields["name"] = str(train.get(KEY)).rpartition(".")[2]
        split, loader = (_group(f"data._{name}_", own[name]) for name in ("split", "loader"))
        for name, size in split.items():
            fits = name in ("val", "test") and _is_size(size)
            require(
                fits,
                f"data._split_.{name}",
                size,
                "it takes val and test, samples or shares",
                "data._split_.val=0.1",
            )
        for name, key in PLANNED.items():
            if name in loader:
                raise config_error(f"data._loader_.{name}", loader[name], "the plan has it", key)
        count = _class_count(own["classes"])
        return {**fields, "_split_": split, "_loader_": _loader_options(loader), "_classes_": count}

    @property
    def split(self) -> dict[str, float]:
        return self._split_

    @property
    def loader(self) -> dict[str, Any]:
        return self._loader_

    @property
    def class_count(self) -> int | None:
        return self._classes_

    @property
    def images(self) -> bool:
        return len(self.shape) == 3

    @property
    def as_loaders(self) -> "OwnLoaders":
        """The same where it turns out to be a LightningDataModule, or IterableDatasets."""
        return OwnLoaders(self.name, self._target_, self.arguments, self._loader_, self._classes_)


class Loaders:
    """Data that comes in DataLoaders of the user's own. What they come to is asked of them before any rank starts.

    train_batches: of an epoch, 0 where nobody knows; `regular`: all but the last have one size.
    """

    train_samples: int
    val_size: int
    test_size: int
    train_batches: int
    regular: bool
    classes: int

    @property
    def images(self) -> bool:
        return False


@dataclass(frozen=True)
class OwnLoaders(Target, Loaders):
    """A LightningDataModule, or IterableDatasets.

    _loader_: arguments of torch's DataLoader, of IterableDatasets.
    _classes_, classes, outputs, shape, parts: as of OwnData, for a plain net.
    """

    _loader_: dict[str, Any] = field(default_factory=dict)
    _classes_: int | None = None
    train_samples: int = 0
    val_size: int = 0
    test_size: int = 0
    train_batches: int = 0
    regular: bool = True
    classes: int = 0
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
    def images(self) -> bool:
        return len(self.shape) == 3


@dataclass(frozen=True)
class ModelLoaders(Loaders):
    """The dataloaders that a LightningModule has itself."""

    name: Literal["model"]
    train_samples: int = field(default=0, metadata={FOUND_LATER: True})
    val_size: int = field(default=0, metadata={FOUND_LATER: True})
    test_size: int = field(default=0, metadata={FOUND_LATER: True})
    train_batches: int = field(default=0, metadata={FOUND_LATER: True})
    regular: bool = field(default=True, metadata={FOUND_LATER: True})
    classes: int = field(default=0, metadata={FOUND_LATER: True})


def _group(key: str, values: Any) -> dict[str, Any]:
    if values is not None and not isinstance(values, Mapping):
        raise config_error(key, values, "it is a group of keys", f"{key}={{KEY:VALUE}}")
    return {**(values or {})}


def _is_size(size: Any) -> bool:
    """A number of samples, or a share of all."""
    whole = isinstance(size, int) or (isinstance(size, float) and 0 < size < 1)
    return whole and not isinstance(size, bool) and size >= 0


def _loader_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """As a DataLoader takes them. One that it does not have is found where torch is: its nearest name is told."""
    found = dict(given)
    for name, kind in LOADER.items():
        key = f"data._loader_.{name}"
        if name in given and (name, given[name]) != ("prefetch_factor", None):
            found[name] = coerce_value(kind, key, given[name])
            not_negative(key, found[name])
    own = given.get("collate_fn")
    path = f"{{_target_: {own if isinstance(own, str) else 'PATH'}, _partial_: true}}"
    fits = own is None or isinstance(own, Mapping) or callable(own)
    require(fits, "data._loader_.collate_fn", own, "it is a function, which a target names", path)
    context = given.get("multiprocessing_context")
    if context is not None and context not in CONTEXTS:
        raise option_error("data._loader_.multiprocessing_context", context, "there is no such way", CONTEXTS)
    return found


def _class_count(value: Any) -> int | None:
    """None, or 2 and more."""
    count = int(value) if isinstance(value, str) and value.isdigit() else value
    fits = count is None or (isinstance(count, int) and not isinstance(count, bool) and count >= 2)
    require(fits, "data._classes_", value, "it is the number of classes", "data._classes_=10, say")
    return count


Data = Digits | MNIST | Points | Line | RandomRegression | OwnData | OwnLoaders | ModelLoaders
