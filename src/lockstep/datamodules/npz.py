"""Arrays in a .npz file of NumPy: x and y, or x_train and y_train with those of val and test; or one in a .npy file."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.config_error import config_error, require
from lockstep.datamodules.tensors import (
    STAGES,
    InMemory,
    Split,
    check_share,
    count_classes,
    split_rows,
    targets_for_loss,
)

Samples = Tensor | tuple[Tensor, Tensor]


class NPZ(InMemory):
    """Inputs and targets of a file, or inputs alone, as for an autoencoder.

    Bytes (n, height, width) and (n, height, width, channels) are images, which become (n, channels, height, width).
    """

    def __init__(self, file: str, batch_size: int = 64, val_size: float = 0.1, test_size: float = 0.1) -> None:
        """Sizes are samples, or shares below 1, of arrays that are not split already."""
        super().__init__(batch_size)
        hint = "data.file=FILE.npz, with arrays x and y"
        require(Path(file).is_file(), "data.file", file, "there is no such path", hint)
        check_share("val_size", val_size)
        check_share("test_size", test_size)
        self.save_hyperparameters(logger=False)
        self.file, self.sizes = file, {"val": val_size, "test": test_size}
        self.arrays = {name: _pair(samples) for name, samples in by_split(read_arrays(file), self.sizes).items()}
        inputs, targets = self.arrays["train"][0], self.arrays["train"][-1]
        require(len(inputs) > 0, "data.val_size", val_size, "it leaves nothing to train on", "less, or more data")
        self.sample_shape = tuple(inputs.shape[1:])
        if targets.is_floating_point() or (targets is inputs and targets.dtype == torch.uint8):
            self.num_outputs = targets[0].numel()
            return
        self.num_outputs = count_classes(self.arrays.values())
        if targets is not inputs:  # which are tokens
            self.num_classes = self.num_outputs
            self.class_names = tuple(map(str, range(self.num_classes)))

    def load(self) -> dict[str, Split]:
        return self.arrays


def _pair(samples: Samples) -> Split:
    if isinstance(samples, Tensor):
        return (samples,)
    inputs, targets = samples
    require(len(inputs) == len(targets), "data.file", "x and y", "they have unequal lengths", "as many rows of both")
    return inputs, targets_for_loss(targets)


def by_split(samples: Samples | dict[str, Samples], sizes: Mapping[str, float]) -> dict[str, Samples]:
    """Return the samples by train, val and test; those of one array are divided, always in the same way."""
    if isinstance(samples, dict):
        return samples
    tensors = (samples,) if isinstance(samples, Tensor) else samples
    rows = split_rows(len(tensors[0]), sizes)
    pairs = {name: tuple(tensor[indices] for tensor in tensors) for name, indices in rows.items()}
    return {name: pair[0] if len(pair) == 1 else (pair[0], pair[1]) for name, pair in pairs.items()}


def read_arrays(file: str) -> Samples | dict[str, Samples]:
    """Return inputs and targets, or inputs alone if there is no y; by train, val and test if the names say so."""
    try:
        loaded = np.load(file)
        if isinstance(loaded, np.ndarray):
            return _samples({"x": loaded}, "")
        with loaded as arrays:
            if "x" in arrays:
                return _samples(arrays, "")
            if "x_train" in arrays:
                return {stage: _samples(arrays, f"_{stage}") for stage in STAGES if f"x_{stage}" in arrays}
            reason = f"it holds {', '.join(arrays) or 'nothing'}"
    except (OSError, ValueError, AttributeError, TypeError, EOFError, zipfile.BadZipFile) as error:
        reason = f"it is no .npz file of numbers ({error})"
    raise config_error("data.file", file, reason, "a file with x and y, or x_train, y_train, x_test, y_test")


def _samples(arrays: Mapping[str, Any], suffix: str) -> Samples:
    inputs = _tensor(arrays[f"x{suffix}"])
    if inputs.dtype == torch.uint8 and inputs.dim() == 3:
        inputs = inputs[:, None]
    elif inputs.dtype == torch.uint8 and inputs.dim() == 4 and inputs.shape[3] in (1, 3):
        inputs = inputs.permute(0, 3, 1, 2).contiguous()
    return (inputs, _tensor(arrays[f"y{suffix}"])) if f"y{suffix}" in arrays else inputs


def _tensor(array: Any) -> Tensor:
    """Return bytes and real numbers as they are, other integers as int64."""
    if array.dtype.kind != "f" and array.dtype != np.uint8:
        array = array.astype(np.int64, casting="same_kind")
    return torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))))
