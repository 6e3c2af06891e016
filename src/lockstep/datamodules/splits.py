"""Train, validation and test split of a user's data: a Dataset that is divided, or three; or tensors in their place."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils.data import IterableDataset, Subset, TensorDataset

from lockstep.config_error import ConfigError, config_error, require
from lockstep.datamodules.tensors import split_rows, targets_for_loss

STAGES = ("train", "val", "test")


def splits_of(data: Any, sizes: Mapping[str, float]) -> dict[str, Any]:
    """Return data sets by stage: those of a mapping or a tuple of them, or a division of one."""
    splits = _by_name(data)
    if splits is None:
        dataset = _dataset(data)
        if isinstance(dataset, IterableDataset):
            return {"train": dataset}
        rows = split_rows(len(dataset), sizes)
        datasets = {stage: _subset(dataset, rows[stage]) for stage in STAGES}
    else:
        if splits.get("train") is None:
            raise ConfigError("data.dataset is missing, and so is data.train; write data.dataset={_target_:PATH}.")
        hint = "train, and maybe val and test"
        require({*splits} <= {*STAGES}, "data.dataset", ", ".join(splits), "these are other splits", hint)
        datasets = {stage: _dataset(splits[stage]) for stage in STAGES if splits.get(stage) is not None}
    if not has_samples(datasets["train"]):
        hint = "less, or more data"
        raise config_error("data.val_size", sizes["val"], "nothing is left to train on", hint)
    return datasets


def has_samples(dataset: Any) -> bool:
    """Whether a split may have samples: the number of a stream's is unknown."""
    return isinstance(dataset, IterableDataset) or (dataset is not None and len(dataset) > 0)


def class_names_of(dataset: Any) -> tuple[str, ...]:
    """Return the attribute `classes` of a Dataset, or of the one that it is a subset of; empty if it has none."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    return tuple(map(str, names)) if isinstance(names, Iterable) and not isinstance(names, str) else ()


def largest_in(datasets: Iterable[Any]) -> int | None:
    """Return the largest target, or token, in data sets of tensors; None for others."""
    largest: list[int] = []
    for dataset in datasets:
        if type(dataset) is not TensorDataset:
            return None
        inputs, targets = dataset.tensors[0], dataset.tensors[-1]
        is_sequence = inputs.shape == targets.shape and inputs.dim() == 2 and not inputs.is_floating_point()
        largest += [int(each.max()) for each in ((inputs, targets) if is_sequence else (targets,)) if len(each)]
    return max(largest)


def _by_name(data: Any) -> dict[str, Any] | None:
    """Return a mapping or a tuple of splits as a mapping; None for one data set."""
    if isinstance(data, Mapping):
        return {"val" if name == "validation" and "val" not in data else str(name): data[name] for name in data}
    if isinstance(data, list | tuple) and not _is_pair(data) and 2 <= len(data) <= 3:
        return dict(zip(STAGES if len(data) == 3 else ("train", "test"), data, strict=True))
    return None


def _is_pair(data: Any) -> bool:
    return isinstance(data, list | tuple) and len(data) == 2 and all(isinstance(item, Tensor) for item in data)


def _subset(dataset: Any, rows: Sequence[int]) -> Any:
    """Return some rows; of tensors as tensors, whose batches are fetched by index."""
    if type(dataset) is TensorDataset:
        return TensorDataset(*(tensor[rows] for tensor in dataset.tensors))
    return Subset(dataset, rows)


def _dataset(data: Any) -> Any:
    """Return a Dataset, or tensors as one."""
    if isinstance(data, Tensor) or _is_pair(data):
        tensors = [data] if isinstance(data, Tensor) else [data[0], targets_for_loss(data[1])]
        fits, hint = len({*map(len, tensors)}) == 1, "as many rows of both"
        require(fits, "data.dataset", "tensors", "they have unequal lengths", hint)
        return TensorDataset(*tensors)
    has_index = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    fits = isinstance(data, IterableDataset) or (has_index and not isinstance(data, str | list | tuple | dict))
    hint = "the path of what makes a map-style Dataset, a pair of tensors, or a mapping of train, val and test to such"
    require(fits, "data.dataset", type(data).__name__, "it cannot be divided in train, val and test", hint)
    return data
