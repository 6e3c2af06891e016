"""Data of a user's: a Dataset that is divided, or three; or tensors, or a function that returns any of these."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset, default_collate

from lockstep.base.config_error import config_error, require
from lockstep.datamodules.tensors import STAGES, SplitData, split_rows, targets_for_loss

PLANNED = {"dataset", "shuffle", "sampler", "batch_sampler", "worker_init_fn", "batch_size", "drop_last", "generator"}
"""Arguments of a DataLoader that would change the order of samples."""


class Datasets(SplitData):
    """Batches of [inputs, targets], or of inputs alone; bytes become floats from 0 to 1.

    Args:
        dataset: a Dataset, a tensor or a pair of them, which `val_size` and `test_size` divide; or a mapping of train,
            val and test to such.
        train, val, test: in place of `dataset`.
        val_size: samples, or a share below 1; the division is always the same.
        loader: arguments of torch's DataLoader, `{num_workers: 2}`.
        num_classes: needed if neither the targets in a tensor nor the attribute `classes` of the Dataset give it.
        input_key, target_key: the keys of samples that are mappings.
    """

    def __init__(
        self,
        dataset: Any = None,
        batch_size: int = 64,
        train: Any = None,
        val: Any = None,
        test: Any = None,
        val_size: float = 0.1,
        test_size: float = 0.1,
        loader: Mapping[str, Any] | None = None,
        num_classes: int | None = None,
        input_key: str | None = None,
        target_key: str | None = None,
    ) -> None:
        super().__init__(batch_size)
        fits = num_classes is None or num_classes >= 2
        require(fits, "data.num_classes", num_classes, "it must be 2 or more", "data.num_classes=10")
        splits = {"train": train, "val": val, "test": test} if dataset is None else dataset
        self.datasets = split_data(splits, val_size, test_size)
        self.loader_options = _loader_options(loader or {}, input_key, target_key)
        try:
            DataLoader(self.datasets["train"], **self.loader_options)
        except (ValueError, TypeError) as error:
            raise config_error("data.loader", loader, str(error), "other arguments") from None
        self.class_names = _class_names(self.datasets["train"])
        self.num_outputs = self.num_classes = num_classes or len(self.class_names) or None
        if not isinstance(self.datasets["train"], IterableDataset):
            self._describe()

    def _describe(self) -> None:
        """Set `sample_shape`, `num_outputs` and `num_classes` as far as the first sample and the targets tell them."""
        batch = self.loader_options.get("collate_fn", default_collate)([self.datasets["train"][0]])
        parts = [*batch] if isinstance(batch, list | tuple) else [batch]
        inputs, targets = parts[0], parts[-1]
        if not isinstance(inputs, Tensor) or not isinstance(targets, Tensor):
            return
        self.sample_shape = tuple(inputs.shape[1:])
        if targets.is_floating_point() or (len(parts) == 1 and targets.dtype == torch.uint8):
            self.num_outputs, self.num_classes, self.class_names = targets[0].numel(), 0, ()
            return
        self.num_outputs = self.num_classes or _count_classes(self.datasets.values()) or None
        self.num_classes = 0 if len(parts) == 1 else self.num_outputs  # the inputs alone are tokens
        if len(parts) > 1 and len(self.class_names) != (self.num_classes or 0):
            self.class_names = tuple(map(str, range(self.num_classes or 0)))

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Convert bytes and real numbers to the dtype of the module, and targets to the shape that a loss takes."""
        parts = [batch] if isinstance(batch, Tensor) else batch
        if not (isinstance(parts, list | tuple) and len(parts) in (1, 2) and all(isinstance(x, Tensor) for x in parts)):
            return batch
        converted = super().on_after_batch_transfer([parts[0], *map(targets_for_loss, parts[1:])], dataloader_idx)
        if len(parts) == 2:
            return converted
        return converted[0] if converted[0].is_floating_point() else converted[0].long()


def split_data(data: Any, val_size: float, test_size: float) -> dict[str, Any]:
    """Return Datasets by train, val and test: those of a mapping or a tuple, or parts of one; a stream is all train."""
    if isinstance(data, Mapping):
        splits = {"val" if name == "validation" and "val" not in data else str(name): data[name] for name in data}
    elif isinstance(data, list | tuple) and not _is_pair(data) and 2 <= len(data) <= 3:
        splits = dict(zip(STAGES if len(data) == 3 else ("train", "test"), data, strict=True))
    else:
        dataset = _dataset_of(data)
        if isinstance(dataset, IterableDataset):
            return {"train": dataset}
        rows = split_rows(len(dataset), val_size, test_size)
        return {stage: _dataset_of(Subset(dataset, rows[stage])) for stage in STAGES}
    fits = splits.get("train") is not None and {*splits} <= {*STAGES}
    hint = "train, and maybe val and test"
    require(fits, "data.dataset", ", ".join(map(str, splits)), "it is in other parts", hint)
    return {stage: _dataset_of(split) for stage, split in splits.items() if split is not None}


def _is_pair(data: Any) -> bool:
    return isinstance(data, list | tuple) and len(data) == 2 and all(isinstance(item, Tensor) for item in data)


def _dataset_of(data: Any) -> Any:
    """Return a Dataset; of tensors, or of some rows of tensors, as a TensorDataset, which is fetched by index."""
    if isinstance(data, Tensor) or _is_pair(data):
        tensors = [data] if isinstance(data, Tensor) else [data[0], targets_for_loss(data[1])]
        fits = len({*map(len, tensors)}) == 1
        require(fits, "data", "inputs and targets", "they have unequal lengths", "as many rows of both")
        return TensorDataset(*tensors)
    if type(data) is Subset and type(data.dataset) is TensorDataset:
        return TensorDataset(*(tensor[data.indices] for tensor in data.dataset.tensors))
    has_index = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    fits = isinstance(data, IterableDataset) or (has_index and not isinstance(data, str | list | tuple | dict))
    hint = "the path of what makes a map-style Dataset, a pair of tensors, or a mapping of train, val and test to such"
    require(fits, "data.dataset", type(data).__name__, "it cannot be divided in train, val and test", hint)
    return data


def _class_names(dataset: Any) -> tuple[str, ...]:
    """Return the attribute `classes` of a Dataset, or of the one that it is a subset of; empty if it has none."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    return tuple(map(str, names)) if isinstance(names, Iterable) and not isinstance(names, str) else ()


def _count_classes(datasets: Iterable[Any]) -> int:
    """Return the largest class, or token, of all tensors in memory and one; 0 if there are none."""
    largest = -1
    for inputs, *targets in (data.tensors for data in datasets if type(data) is TensorDataset and len(data)):
        are_tokens = inputs.dtype != torch.uint8 and inputs.dim() == 2 and all(inputs.shape == x.shape for x in targets)
        for tensor in (inputs, *targets) if are_tokens or not targets else targets:
            largest = largest if tensor.is_floating_point() else max(largest, int(tensor.max()))
    return largest + 1


def _loader_options(loader: Mapping[str, Any], input_key: str | None, target_key: str | None) -> dict[str, Any]:
    """Return the arguments of a DataLoader; its collate function leaves the named keys of a mapping."""
    for name in {*loader} & PLANNED:
        hint = "nothing in its place, or batch_size=…, drop_last=true or seed=… of the run"
        raise config_error(f"data.loader.{name}", loader[name], "the run determines it", hint)
    fits, hint = target_key is None or input_key is not None, "data.input_key=KEY beside it"
    require(fits, "data.target_key", target_key, "it needs the key of the inputs", hint)
    named_keys = {"data.input_key": input_key, "data.target_key": target_key}
    keys = {option: key for option, key in named_keys.items() if key is not None}
    function = loader.get("collate_fn", default_collate)
    return {**loader, **({"collate_fn": partial(collate_values, keys, function)} if keys else {})}


def collate_values(keys: Mapping[str, str], function: Callable[..., Any], samples: Sequence[Any]) -> Any:
    """Collate the named values of samples; torch's own function gets these alone, as others may not be collatable."""
    if function is not default_collate:
        values = _values_of(function(samples), keys)  # torch collates lists of numbers by place
        return [torch.stack(value, 1) if isinstance(value, list) else value for value in values]
    pairs = [_values_of(sample, keys) for sample in samples]
    return default_collate(
        [tuple(torch.tensor(value) if isinstance(value, list) else value for value in pair) for pair in pairs]
    )


def _values_of(sample: Any, keys: Mapping[str, str]) -> tuple[Any, ...]:
    """Return the values of a sample, or of a batch, at the keys; raise if it lacks one."""
    names = [*sample] if isinstance(sample, Mapping) else []
    for option, key in keys.items():
        reason = f"a sample has no such key: it is a {type(sample).__name__}"
        require(key in names, option, key, reason, f"one of {', '.join(map(str, names)) or 'none'}")
    return tuple(sample[key] for key in keys.values())
