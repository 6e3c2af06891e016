"""Data of a user's as Datasets by train, val and test, and the tensors in their samples."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, Subset, TensorDataset, default_collate

from lockstep.config_error import require
from lockstep.datamodules.tensors import STAGES, split_rows, targets_for_loss


def by_name(data: Any) -> dict[str, Any] | None:
    """Return a mapping or a tuple of splits as a mapping; None for one data set."""
    if isinstance(data, Mapping):
        return {"val" if name == "validation" and "val" not in data else str(name): data[name] for name in data}
    if isinstance(data, list | tuple) and not is_pair(data) and 2 <= len(data) <= 3:
        return dict(zip(STAGES if len(data) == 3 else ("train", "test"), data, strict=True))
    return None


def is_pair(data: Any) -> bool:
    return isinstance(data, list | tuple) and len(data) == 2 and all(isinstance(item, Tensor) for item in data)


def divided(data: Any, sizes: Mapping[str, float]) -> dict[str, Any]:
    """Return train, val and test of one data set; of a stream all is train."""
    dataset = dataset_of(data)
    if isinstance(dataset, IterableDataset):
        return {"train": dataset}
    return {name: dataset_of(Subset(dataset, rows)) for name, rows in split_rows(len(dataset), sizes).items()}


def named(splits: Mapping[str, Any]) -> dict[str, Any]:
    """Return data that is in parts already."""
    names = ", ".join(map(str, splits))
    fits = splits.get("train") is not None and {*splits} <= {*STAGES}
    require(fits, "data.dataset", names, "it is in other parts", "train, and maybe val and test")
    return {name: dataset_of(split) for name, split in splits.items() if split is not None}


def dataset_of(data: Any) -> Any:
    """Return a Dataset; of tensors, or of some rows of tensors, as a TensorDataset, which is fetched by index."""
    if isinstance(data, Tensor) or is_pair(data):
        tensors = [data] if isinstance(data, Tensor) else [data[0], targets_for_loss(data[1])]
        fits, hint = len({*map(len, tensors)}) == 1, "as many rows of both"
        require(fits, "data.dataset", "tensors", "they have unequal lengths", hint)
        return TensorDataset(*tensors)
    if type(data) is Subset and type(data.dataset) is TensorDataset:
        return TensorDataset(*(tensor[data.indices] for tensor in data.dataset.tensors))
    has_index = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    fits = isinstance(data, IterableDataset) or (has_index and not isinstance(data, str | list | tuple | dict))
    hint = "the path of what makes a map-style Dataset, a pair of tensors, or a mapping of train, val and test to such"
    require(fits, "data.dataset", type(data).__name__, "it cannot be divided in train, val and test", hint)
    return data


def class_names(dataset: Any) -> tuple[str, ...]:
    """Return the attribute `classes` of a Dataset, or of the one that it is a subset of; empty if it has none."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    return tuple(map(str, names)) if isinstance(names, Iterable) and not isinstance(names, str) else ()


def values_of(sample: Any, keys: Mapping[str, str]) -> tuple[Any, ...]:
    """Return the named values of a sample, or of a batch: the input alone if it is its own target."""
    names = [*sample] if isinstance(sample, Mapping) else []
    for option, key in keys.items():
        reason = f"a sample has no such key: it is a {type(sample).__name__}"
        require(key in names, option, key, reason, f"one of {', '.join(map(str, names)) or 'none'}")
    return tuple(sample[key] for key in keys.values())


def collate_values(keys: Mapping[str, str], function: Callable[..., Any], samples: Sequence[Any]) -> Any:
    """Collate the named values of samples; torch's own function gets these alone, as others may not be collatable."""
    if function is not default_collate:
        values = values_of(function(samples), keys)  # torch collates lists of numbers by place
        return [torch.stack(value, 1) if isinstance(value, list) else value for value in values]
    pairs = [values_of(sample, keys) for sample in samples]
    return default_collate(
        [tuple(torch.tensor(value) if isinstance(value, list) else value for value in pair) for pair in pairs]
    )
