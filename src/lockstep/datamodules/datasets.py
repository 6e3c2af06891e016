"""Data of a user's: a Dataset or tensors, which are divided, or a mapping of train, val and test to them."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, Subset, TensorDataset, default_collate

from lockstep.base.config_error import require
from lockstep.datamodules.tensors import STAGES, SplitData, split_rows


class Datasets(SplitData):
    """Batches of [inputs, targets], or of inputs alone; bytes become floats from 0 to 1.

    Args:
        dataset: a Dataset, a tensor or a pair of them, which `val_size` and `test_size` divide; or a mapping of train,
            val and test to such.
        val_size: samples, or a share below 1; the division is always the same.
        loader: arguments of torch's DataLoader, `{num_workers: 2}`.
        num_classes: needed if neither the targets in a tensor nor the attribute `classes` of the Dataset give it.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 64,
        val_size: float = 0.1,
        test_size: float = 0.1,
        loader: Mapping[str, Any] | None = None,
        num_classes: int | None = None,
    ) -> None:
        super().__init__(batch_size)
        self.datasets = split_data(dataset, val_size, test_size)
        self.loader_options = {**(loader or {})}
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
        if not isinstance(parts, list | tuple) or [*map(type, parts)] not in ([Tensor], [Tensor, Tensor]):
            return batch
        converted = super().on_after_batch_transfer([parts[0], *map(targets_for_loss, parts[1:])], dataloader_idx)
        return converted if len(parts) == 2 else converted[0]


def split_data(data: Any, val_size: float, test_size: float) -> dict[str, Any]:
    """Return Datasets by train, val and test: those of a mapping, or parts of one; a stream is all train."""
    if isinstance(data, Mapping):
        names = {"val" if name == "validation" else str(name): name for name in data if data[name] is not None}
        splits = {stage: _dataset_of(data[name]) for stage, name in names.items()}
        fits, hint = {"train"} <= {*splits} <= {*STAGES}, "train, and maybe val and test"
        require(fits, "data.dataset", ", ".join(splits), "it is in other parts", hint)
        return splits
    dataset = _dataset_of(data)
    if isinstance(dataset, IterableDataset):
        return {"train": dataset}
    rows = split_rows(len(dataset), val_size, test_size)
    if type(dataset) is TensorDataset:
        return {stage: TensorDataset(*(tensor[rows[stage]] for tensor in dataset.tensors)) for stage in STAGES}
    return {stage: Subset(dataset, rows[stage]) for stage in STAGES}


def _dataset_of(data: Any) -> Any:
    """Return a Dataset; of a tensor or a pair of them a TensorDataset, which is fetched by index."""
    tensors = [data] if isinstance(data, Tensor) else data
    if isinstance(tensors, list | tuple) and [*map(type, tensors)] in ([Tensor], [Tensor, Tensor]):
        return TensorDataset(*tensors)
    has_index = hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, str | list | tuple)
    hint = "the path of what makes a map-style Dataset, a pair of tensors, or a mapping of train, val and test to such"
    fits = isinstance(data, IterableDataset) or has_index
    require(fits, "data.dataset", type(data).__name__, "it cannot be divided in train, val and test", hint)
    return data


def targets_for_loss(targets: Tensor) -> Tensor:
    """Return real numbers as (n, outputs), so that one a sample is not compared with all outputs; classes as int64."""
    if targets.is_floating_point():
        return targets[:, None] if targets.dim() == 1 else targets
    return targets.long().flatten() if targets.dim() == 2 and targets.shape[1] == 1 else targets.long()


def _class_names(dataset: Any) -> tuple[str, ...]:
    """Return the attribute `classes` of a Dataset, or of the one that it is a subset of; empty if it has none."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    return tuple(map(str, names)) if isinstance(names, Iterable) and not isinstance(names, str) else ()


def _count_classes(datasets: Iterable[Any]) -> int:
    """Return the largest class, or token, of targets in memory and one; 0 if there are none."""
    targets = [data.tensors[-1] for data in datasets if type(data) is TensorDataset and len(data)]
    return 1 + max((int(tensor.max()) for tensor in targets), default=-1)
