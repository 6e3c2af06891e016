"""Data of a user's: a Dataset that is divided, or three; or tensors, or a function that returns any of these."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from lockstep.config_error import config_error, require
from lockstep.datamodules.samples import by_name, class_names, collate_values, divided, named
from lockstep.datamodules.tensors import (
    EVALUATION_BATCH,
    as_float,
    check_batch_size,
    check_share,
    count_classes,
    targets_for_loss,
)

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
        check_batch_size(batch_size)
        check_share("val_size", val_size)
        check_share("test_size", test_size)
        fits = num_classes is None or num_classes >= 2
        require(fits, "data.num_classes", num_classes, "it must be 2 or more", "data.num_classes=10")
        splits = {"train": train, "val": val, "test": test} if dataset is None else by_name(dataset)
        sizes = {"val": val_size, "test": test_size}
        self.datasets = divided(dataset, sizes) if splits is None else named(splits)
        has_samples = isinstance(self.datasets["train"], IterableDataset) or len(self.datasets["train"]) > 0
        require(has_samples, "data.val_size", val_size, "it leaves nothing to train on", "less, or more data")
        self.batch_size, self.options = batch_size, _loader_options(loader or {}, input_key, target_key)
        try:
            DataLoader(self.datasets["train"], **self.options)
        except (ValueError, TypeError) as error:
            raise config_error("data.loader", loader, str(error), "other arguments") from None
        self.class_names = class_names(self.datasets["train"])
        self.num_outputs = self.num_classes = num_classes or len(self.class_names) or None
        if not isinstance(self.datasets["train"], IterableDataset):
            self._describe()

    def _describe(self) -> None:
        """Set `sample_shape`, `num_outputs` and `num_classes` as far as the first sample and the targets tell them."""
        batch = self.options.get("collate_fn", default_collate)([self.datasets["train"][0]])
        parts = [*batch] if isinstance(batch, list | tuple) else [batch]
        inputs, targets = parts[0], parts[-1]
        if not isinstance(inputs, Tensor) or not isinstance(targets, Tensor):
            return
        self.sample_shape = tuple(inputs.shape[1:])
        tables = [data.tensors for data in self.datasets.values() if type(data) is TensorDataset]
        if targets.is_floating_point() or (len(parts) == 1 and targets.dtype == torch.uint8):
            self.num_outputs, self.num_classes, self.class_names = targets[0].numel(), 0, ()
        elif len(parts) == 1:  # tokens
            self.num_outputs, self.num_classes = self.num_classes or count_classes(tables) or None, 0
        else:
            self.num_classes = self.num_outputs = self.num_classes or count_classes(tables) or None
            if len(self.class_names) != (self.num_classes or 0):
                self.class_names = tuple(map(str, range(self.num_classes or 0)))

    def loader(self, stage: str) -> Any:
        dataset = self.datasets.get(stage)
        is_stream = isinstance(dataset, IterableDataset)
        if dataset is None or not (is_stream or len(dataset)):
            return []
        shuffle = stage == "train" and not is_stream
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
        parts = [batch] if isinstance(batch, Tensor) else batch
        if not (isinstance(parts, list | tuple) and len(parts) in (1, 2) and all(isinstance(x, Tensor) for x in parts)):
            return batch
        dtype = self.trainer.lightning_module.dtype if self.trainer is not None else torch.float32
        inputs = as_float(parts[0], dtype)
        if len(parts) == 2:
            return [inputs, as_float(targets_for_loss(parts[1]), dtype)]
        return inputs if inputs.is_floating_point() else inputs.long()


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
