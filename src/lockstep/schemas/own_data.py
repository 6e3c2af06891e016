"""Data of the user's own: Datasets, or loaders of a LightningDataModule or a LightningModule."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from lockstep.config_error import config_error, not_negative, option_error, require
from lockstep.schemas.target import KEY, Target

BATCH_SIZE = 64
"""Where neither the plan nor a DataLoader of the user's says how many samples a global batch has."""

FOUND = (
    *("train_samples", "val_size", "test_size", "classes", "outputs", "shape", "parts"),
    *("train_batches", "regular", "val_batch_sizes", "test_batch_sizes"),
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

OURS = ("split", "loader", "classes", "inputs", "targets")
"""Keys between underlines, which are not the target's arguments."""

CONTEXTS = ("fork", "forkserver", "spawn")


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
        values = dict(values)
        own = {name: values.pop(f"_{name}_", None) for name in OURS}
        fields = super().of({KEY: "builtins.dict", **values})
        if KEY not in values and isinstance(train := values.get("train"), Mapping):
            fields["name"] = str(train.get(KEY)).rpartition(".")[2]
        split, loader = (_group(f"data._{name}_", own[name]) for name in ("split", "loader"))
        for name, size in split.items():
            fits = name in ("val", "test") and _is_size(size)
            why = "it takes val and test, samples or shares"
            require(fits, f"data._split_.{name}", size, why, "data._split_.val=0.1")
        for name, key in PLANNED.items():
            if name in loader:
                raise config_error(f"data._loader_.{name}", loader[name], "the plan has it", key)
        count = _class_count(own["classes"])
        keys = {f"_{name}_": _sample_key(f"data._{name}_", own[name]) for name in ("inputs", "targets")}
        alone = keys["_targets_"] is not None and keys["_inputs_"] is None
        why, instead = "where the target has a key the input has one too", "data._inputs_=KEY beside it"
        require(not alone, "data._targets_", keys["_targets_"], why, instead)
        return {**fields, "_split_": split, "_loader_": _loader_options(loader), "_classes_": count, **keys}

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
    from lockstep.schemas.coerce import coerce_value

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


def _sample_key(key: str, value: Any) -> str | None:
    """None, or a word."""
    fits = value is None or (isinstance(value, str) and value != "")
    require(fits, key, value, "it is one key of each sample", f"{key}=image, say")
    return value if isinstance(value, str) else None


def _class_count(value: Any) -> int | None:
    """None, or 2 and more."""
    count = int(value) if isinstance(value, str) and value.isdigit() else value
    fits = count is None or (isinstance(count, int) and not isinstance(count, bool) and count >= 2)
    require(fits, "data._classes_", value, "it is the number of classes", "data._classes_=10, say")
    return count
