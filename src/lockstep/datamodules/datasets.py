"""Data of a user's: a Dataset that is divided, or three; or tensors, or a function that returns any of these."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset, default_collate

from lockstep.config_error import config_error, require
from lockstep.datamodules.tensors import EVALUATION_BATCH, as_float, check_share, split_rows, targets_for_loss

STAGES = ("train", "val", "test")
PLANNED = {"dataset", "shuffle", "sampler", "batch_sampler", "worker_init_fn", "batch_size", "drop_last", "generator"}
"""Arguments of a DataLoader that would change the order of samples."""


class Datasets(LightningDataModule):
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

    evaluation_batch = EVALUATION_BATCH

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
        super().__init__()
        check_share("val_size", val_size)
        check_share("test_size", test_size)
        for name in {*(loader or {})} & PLANNED:
            hint = "nothing in its place, or batch_size=…, drop_last=true or seed=… of the run"
            raise config_error(f"data.loader.{name}", (loader or {})[name], "the run determines it", hint)
        fits = num_classes is None or num_classes >= 2
        require(fits, "data.num_classes", num_classes, "it must be 2 or more", "data.num_classes=10")
        fits, hint = target_key is None or input_key is not None, "data.input_key=KEY beside it"
        require(fits, "data.target_key", target_key, "it needs the key of the inputs", hint)
        self.batch_size, self.options = batch_size, {**(loader or {})}
        keys = {"data.input_key": input_key, "data.target_key": target_key}
        self.keys = {option: key for option, key in keys.items() if key is not None}
        splits = {"train": train, "val": val, "test": test} if dataset is None else by_name(dataset)
        self.datasets = _divided(dataset, {"val": val_size, "test": test_size}) if splits is None else _three(splits)
        require(_length(self.datasets["train"]) > 0, "data.val_size", val_size, "it leaves nothing to train on", "less")
        if self.keys:
            self.options["collate_fn"] = partial(collate_values, self.keys, self.options.get("collate_fn", default_collate))
        self.class_names = class_names(self.datasets["train"])
        self.num_classes = num_classes or len(self.class_names) or None
        self._describe()

    def _describe(self) -> None:
        """Set `sample_shape`, `num_outputs` and `num_classes` as far as a sample tells them."""
        train, classes = self.datasets["train"], self.num_classes
        self.num_outputs = classes
        if isinstance(train, IterableDataset):
            return
        inputs, targets = pair_of(self.options.get("collate_fn", default_collate)([train[0]]))
        if not isinstance(inputs, Tensor) or not isinstance(targets, Tensor):
            return
        self.sample_shape = tuple(inputs.shape[1:])
        if targets.is_floating_point() or targets is inputs:
            is_real = targets.is_floating_point() or targets.dtype == torch.uint8
            self.num_outputs, self.num_classes = targets[0].numel() if is_real else self._largest() + 1, None
            return
        if classes is None and (largest := self._largest()) >= 0:
            self.num_classes = self.num_outputs = largest + 1
        if self.num_classes is None:
            reason = "the targets are whole numbers"
            raise config_error("data.num_classes", None, reason, "data.num_classes=10, for ten classes")
        if len(self.class_names) != self.num_classes:
            self.class_names = tuple(map(str, range(self.num_classes)))

    def _largest(self) -> int:
        """Return the largest target of data in tensors; -1 if it is not in tensors."""
        tensors = [targets for dataset in self.datasets.values() if (targets := targets_in(dataset)) is not None]
        return max((int(each.max()) for each in tensors if len(each)), default=-1)

    def loader(self, stage: str) -> Any:
        dataset = self.datasets.get(stage)
        if dataset is None or not _length(dataset):
            return []
        shuffle = stage == "train" and not isinstance(dataset, IterableDataset)
        return DataLoader(dataset, batch_size=self.batch_size, shuffle=shuffle, **self.options)

    def train_dataloader(self) -> Any:
        return self.loader("train")

    def val_dataloader(self) -> Any:
        return self.loader("val")

    def test_dataloader(self) -> Any:
        return self.loader("test")

    def predict_dataloader(self) -> Any:
        return self.test_dataloader()

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Convert bytes and real numbers to the dtype of the module, and targets to the shape that a loss takes."""
        pair = isinstance(batch, list | tuple) and len(batch) == 2 and all(isinstance(each, Tensor) for each in batch)
        if not (pair or isinstance(batch, Tensor)):
            return batch
        dtype = self.trainer.lightning_module.dtype if self.trainer is not None else torch.float32
        inputs, targets = (batch, None) if isinstance(batch, Tensor) else batch
        is_token = targets is None and self.num_outputs is not None and inputs.dim() == 2 and not inputs.is_floating_point()
        inputs = inputs.long() if is_token else as_float(inputs, dtype)
        if targets is None:
            return inputs
        targets = targets_for_loss(targets)
        return [inputs, targets.to(dtype) if targets.is_floating_point() else targets]


def by_name(data: Any) -> dict[str, Any] | None:
    """Return a mapping or a tuple of splits as a mapping; None for one data set."""
    if isinstance(data, Mapping):
        return {"val" if name == "validation" and "val" not in data else str(name): data[name] for name in data}
    if isinstance(data, list | tuple) and not is_pair(data) and 2 <= len(data) <= 3:
        return dict(zip(STAGES if len(data) == 3 else ("train", "test"), data, strict=True))
    return None


def is_pair(data: Any) -> bool:
    return isinstance(data, list | tuple) and len(data) == 2 and all(isinstance(item, Tensor) for item in data)


def pair_of(batch: Any) -> tuple[Any, Any]:
    """Return inputs and targets of a batch; the inputs stand for targets that it does not have."""
    parts = [*batch] if isinstance(batch, list | tuple) else [batch]
    return parts[0], parts[-1]


def class_names(dataset: Any) -> tuple[str, ...]:
    """Return the attribute `classes` of a Dataset, or of the one that it is a subset of; empty if it has none."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    return tuple(map(str, names)) if isinstance(names, Iterable) and not isinstance(names, str) else ()


def targets_in(dataset: Any) -> Tensor | None:
    """Return the targets of a data set of tensors."""
    return dataset.tensors[-1] if type(dataset) is TensorDataset else None


def _divided(data: Any, sizes: Mapping[str, float]) -> dict[str, Any]:
    dataset = _dataset(data)
    if isinstance(dataset, IterableDataset):
        return {"train": dataset}
    return {name: _subset(dataset, rows) for name, rows in split_rows(len(dataset), sizes).items()}


def _subset(dataset: Any, rows: Sequence[int]) -> Any:
    """Return some rows; of tensors as tensors, whose batches are fetched by index."""
    if type(dataset) is TensorDataset:
        return TensorDataset(*(tensor[rows] for tensor in dataset.tensors))
    return Subset(dataset, rows)


def _three(splits: Mapping[str, Any]) -> dict[str, Any]:
    names = ", ".join(map(str, splits))
    fits = splits.get("train") is not None and {*splits} <= {*STAGES}
    require(fits, "data.dataset", names, "it is in other parts", "train, and maybe val and test")
    return {name: _dataset(split) for name, split in splits.items() if split is not None}


def _dataset(data: Any) -> Any:
    """Return a Dataset, or tensors as one."""
    if isinstance(data, Tensor) or is_pair(data):
        tensors = [data] if isinstance(data, Tensor) else [data[0], targets_for_loss(data[1])]
        fits, hint = len({*map(len, tensors)}) == 1, "as many rows of both"
        require(fits, "data.dataset", "tensors", "they have unequal lengths", hint)
        return TensorDataset(*tensors)
    has_index = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    fits = isinstance(data, IterableDataset) or (has_index and not isinstance(data, str | list | tuple | dict))
    hint = "the path of what makes a map-style Dataset, a pair of tensors, or a mapping of train, val and test to such"
    require(fits, "data.dataset", type(data).__name__, "it cannot be divided in train, val and test", hint)
    return data


def _length(dataset: Any) -> int:
    return 1 if isinstance(dataset, IterableDataset) else len(dataset)


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
