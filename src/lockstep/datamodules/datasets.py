"""Data of a user's: a Dataset that is divided, or three; or tensors, or a function that returns any of these."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, default_collate

from lockstep.config_error import config_error, require
from lockstep.datamodules.mappings import collate_values
from lockstep.datamodules.splits import class_names_of, has_samples, largest_in, splits_of
from lockstep.datamodules.tensors import EVALUATION_BATCH, as_float, check_share, dtype_for, targets_for_loss

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
        fits = num_classes is None or num_classes >= 2
        require(fits, "data.num_classes", num_classes, "it must be 2 or more", "data.num_classes=10")
        fits, hint = target_key is None or input_key is not None, "data.input_key=KEY beside it"
        require(fits, "data.target_key", target_key, "it needs the key of the inputs", hint)
        self.batch_size, self.options = batch_size, {**(loader or {})}
        splits = {"train": train, "val": val, "test": test} if dataset is None else dataset
        self.datasets = splits_of(splits, {"val": val_size, "test": test_size})
        self._check_options()
        keys = {"data.input_key": input_key, "data.target_key": target_key}
        if keys := {option: key for option, key in keys.items() if key is not None}:
            self.options["collate_fn"] = partial(collate_values, keys, self.options.get("collate_fn", default_collate))
        self.class_names = class_names_of(self.datasets["train"])
        self.num_classes = self.num_outputs = num_classes or len(self.class_names) or None
        self._describe()

    def _check_options(self) -> None:
        for name in {*self.options} & PLANNED:
            hint = "nothing in its place, or batch_size=…, drop_last=true or seed=… of the run"
            raise config_error(f"data.loader.{name}", self.options[name], "the run determines it", hint)
        try:
            DataLoader(self.datasets["train"], **self.options)
        except (ValueError, TypeError) as error:
            raise config_error("data.loader", self.options, str(error), "other arguments") from None

    def _describe(self) -> None:
        """Set `sample_shape`, `num_outputs` and `num_classes` as far as a sample and targets in tensors tell them."""
        train = self.datasets["train"]
        if isinstance(train, IterableDataset):
            return
        batch = self.options.get("collate_fn", default_collate)([train[0]])
        tensors = [*batch] if isinstance(batch, list | tuple) else [batch]
        if len(tensors) not in (1, 2) or not all(isinstance(tensor, Tensor) for tensor in tensors):
            return
        inputs, targets = tensors[0], tensors[-1]
        self.sample_shape = tuple(inputs.shape[1:])
        if targets.is_floating_point() or (targets is inputs and targets.dtype == torch.uint8):
            self.num_outputs, self.num_classes, self.class_names = targets[0].numel(), 0, ()
            return
        if self.num_outputs is None and (largest := largest_in(self.datasets.values())) is not None:
            self.num_outputs = largest + 1
        self.num_classes = 0 if targets is inputs else self.num_outputs  # inputs alone are tokens
        if len(self.class_names) != (self.num_classes or 0):
            self.class_names = tuple(map(str, range(self.num_classes or 0)))

    def loader(self, stage: str) -> Any:
        """Return the loader of a stage, or none for a split without samples."""
        dataset = self.datasets.get(stage)
        if not has_samples(dataset):
            return []
        shuffle = stage == "train" and not isinstance(dataset, IterableDataset)
        return DataLoader(dataset, batch_size=self.batch_size, shuffle=shuffle, **self.options)  # type: ignore[arg-type]

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
        tensors = [*batch] if isinstance(batch, list | tuple) else [batch]
        if len(tensors) not in (1, 2) or not all(isinstance(tensor, Tensor) for tensor in tensors):
            return batch  # for a user's own module
        dtype = dtype_for(self)
        inputs, *targets = as_float(tensors[0], dtype), *map(targets_for_loss, tensors[1:])
        if not targets and not inputs.is_floating_point():
            inputs = inputs.long()  # tokens
        converted = [inputs, *(as_float(each, dtype) for each in targets)]
        return converted if isinstance(batch, list | tuple) else converted[0]
