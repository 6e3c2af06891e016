"""Data of the user's own: what their target makes, taken for three splits.

It makes a Dataset, or a pair of tensors (inputs, targets), which `_split_` divides; or a mapping or a tuple of such:
train, val, test.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from lockstep import targets
from lockstep.config_error import ConfigError, require
from lockstep.data.samples import SampleData, SampleSplit, generators_kept, in_columns, pair_of
from lockstep.data.tensors import Split, TensorData
from lockstep.schemas.data import OwnData
from lockstep.schemas.target import KEY, PARTIAL

NAMES = ("train", "val", "test")
LOADER = {KEY: "torch.utils.data.DataLoader", PARTIAL: True}


def load(choice: OwnData, seed: int) -> TensorData | SampleData:
    """The splits; whatever the target draws is drawn under the run's seed, the same on every rank.

    Raises:
        ConfigError: the target makes something else than data.
    """
    with generators_kept():
        torch.manual_seed(seed)
        made = targets.create("data", choice.call)
        splits = _three(choice, made)
    outputs, shape = _sizes(choice, made, splits["train"])
    if all(isinstance(split, Split) for split in splits.values()):
        return TensorData(splits["train"], splits["val"], splits["test"], outputs)
    loader = {key: targets.create(f"data._loader_.{key}", value) for key, value in choice.loader.items()}
    train, val, test = (SampleSplit(_dataset(splits[name])) for name in NAMES)
    return SampleData(train, val, test, outputs, shape, seed, loader)


def describe(choice: OwnData, seed: int) -> dict[str, Any]:
    """What a plan has to know of the data, by the fields of OwnData."""
    targets.check("data._loader_", {**LOADER, **choice.loader})
    data = load(choice, seed)
    sizes = {"train_samples": len(data.train), "val_size": len(data.val), "test_size": len(data.test)}
    require(sizes["train_samples"] > 0, f"data.{KEY}", choice.call[KEY], "it has no samples to train on", "another")
    _, target = _sample(choice, data.train)
    classes = 0 if target.is_floating_point() else data.outputs
    return {**sizes, "shape": list(data.shape), "outputs": data.outputs, "classes": classes}


def _three(choice: OwnData, made: Any) -> dict[str, Any]:
    if isinstance(made, Mapping):
        unknown = sorted({*map(str, made)} - {*NAMES})
        require(not unknown and "train" in made, f"data.{KEY}", choice.call[KEY], _odd(made), "train, val and test")
        found = {name: made.get(name) for name in NAMES}
    elif isinstance(made, list | tuple) and not _ispair_of(made):
        require(2 <= len(made) <= 3, f"data.{KEY}", choice.call[KEY], _odd(made), "train, val and test")
        found = {"train": made[0], "val": made[1] if len(made) == 3 else None, "test": made[-1]}
    else:
        found = _divided(choice, made)
    empty: Any = Subset(found["train"], []) if hasattr(found["train"], "__getitem__") else None  # type: ignore[arg-type]
    whole = {name: empty if own is None else own for name, own in found.items()}
    return {name: _split(choice, own) for name, own in whole.items()}


def _divided(choice: OwnData, made: Any) -> dict[str, Any]:
    """One data set in three parts, by a permutation that is always the same."""
    whole = TensorDataset(*made) if _ispair_of(made) else made
    _require_map_style(choice, whole)
    total = len(whole)
    sizes = {name: _count(choice.split.get(name, 0.1), total) for name in ("val", "test")}
    train = total - sum(sizes.values())
    require(train > 0, "data._split_", choice.split, f"it leaves nothing of {total} samples to train on", "less")
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0)).tolist()
    first, second = train + sizes["val"], total
    return {
        "train": Subset(whole, order[:train]),
        "val": Subset(whole, order[train:first]),
        "test": Subset(whole, order[first:second]),
    }


def _count(size: float, total: int) -> int:
    """A number of samples, or the share of all that they are."""
    return round(size * total) if 0 < size < 1 else int(size)


def _split(choice: OwnData, own: Any) -> Any:
    """Tensors where the samples lie in tensors, so that a batch is one index."""
    if _ispair_of(own):
        own = TensorDataset(*own)
    if isinstance(own, Subset) and isinstance(own.dataset, TensorDataset) and len(own.dataset.tensors) == 2:
        return Split(*_rows(TensorDataset(*(part[own.indices] for part in own.dataset.tensors))))
    if type(own) is TensorDataset and len(own.tensors) == 2:
        return Split(*_rows(own))
    _require_map_style(choice, own)
    return own


def _rows(own: TensorDataset) -> tuple[Tensor, Tensor]:
    inputs, targets_ = own.tensors
    return inputs, in_columns(targets_)


def _dataset(split: Any) -> Any:
    return TensorDataset(split.inputs, split.targets) if isinstance(split, Split) else split


def _require_map_style(choice: OwnData, own: Any) -> None:
    fits = hasattr(own, "__getitem__") and hasattr(own, "__len__") and not isinstance(own, str | dict)
    instead = "a map-style Dataset, a pair of tensors, or a mapping of train, val and test to such"
    require(fits, f"data.{KEY}", choice.call[KEY], _odd(own), f"the path of what makes {instead}")


def _odd(made: Any) -> str:
    return f"it makes a {type(made).__name__} that cannot be split in train, val and test"


def _ispair_of(made: Any) -> bool:
    return isinstance(made, list | tuple) and len(made) == 2 and all(isinstance(part, Tensor) for part in made)


def _sizes(choice: OwnData, made: Any, train: Any) -> tuple[int, tuple[int, ...]]:
    """The number of outputs that a net needs, and the shape of a sample.

    Raises:
        ConfigError: there are classes, and nothing says how many.
    """
    inputs, target = _sample(choice, train)
    shape = tuple(inputs.shape)
    if target.is_floating_point():
        return target.numel(), shape
    if choice.class_count is not None:
        return choice.class_count, shape
    if isinstance(train, Split):
        return int(train.targets.max()) + 1, shape
    named = getattr(made.get("train") if isinstance(made, Mapping) else made, "classes", None)
    if named is None:
        raise ConfigError("data._classes_ is missing: the targets are whole numbers; write data._classes_=10, say.")
    return len(named), shape


def _sample(choice: OwnData, split: Any) -> tuple[Tensor, Tensor]:
    """The first sample, as a batch would have it."""
    own = split.dataset if isinstance(split, SampleSplit) else split
    if isinstance(own, Split):
        inputs, target, _ = own[torch.tensor([0])]
        return inputs[0], target[0]
    collate = targets.create("data._loader_.collate_fn", choice.loader.get("collate_fn"))
    with generators_kept():
        inputs, target = pair_of((collate or torch.utils.data.default_collate)([own[0]]))
    return inputs[0], in_columns(target)[0]
