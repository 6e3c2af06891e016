"""Arrays in a .npz file of NumPy: x and y; or x_train and y_train, with those of val and test."""

import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.base.config_error import config_error
from lockstep.datamodules.datasets import Datasets
from lockstep.datamodules.tensors import STAGES

Samples = Tensor | tuple[Tensor, Tensor]


class NPZ(Datasets):
    """Inputs and targets of a file, or inputs alone, as for an autoencoder.

    Bytes (n, height, width) and (n, height, width, channels) are images, which become (n, channels, height, width).
    """

    def __init__(self, file: str, batch_size: int = 64, val_size: float = 0.1, test_size: float = 0.1) -> None:
        """Sizes are samples, or shares below 1, of arrays that are not split already."""
        super().__init__(read_arrays(file), batch_size, val_size, test_size)
        self.save_hyperparameters(logger=False)


def read_arrays(file: str) -> Samples | dict[str, Samples]:
    """Return inputs and targets, or inputs alone if there is no y; by train, val and test if the names say so."""
    try:
        arrays = np.load(file)
        if isinstance(arrays, np.ndarray):  # of a .npy file, which lockstep.predict takes
            return _samples({"x": arrays}, "")
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
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))
