"""Arrays in a .npz file of NumPy: x and y, or x_train and y_train with those of test and val."""

import zipfile
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.config_error import config_error, require

Samples = Tensor | tuple[Tensor, Tensor]


def npz(file: str) -> Samples | dict[str, Samples]:
    """Return inputs and targets, or inputs alone if there is no y; by train, val and test if the names say so.

    Bytes (n, height, width) and (n, height, width, channels) are images, which become (n, channels, height, width).

    Raises:
        ConfigError: the file cannot be read, or its arrays have other names or shapes.
    """
    arrays = _read(file)
    if "x" in arrays:
        return _samples(file, arrays, "")
    stages = [stage for stage in ("train", "val", "test") if f"x_{stage}" in arrays]
    hint = "a file with x and y, or x_train, y_train, x_test, y_test"
    require("train" in stages, "data.file", file, f"it holds {', '.join(arrays) or 'nothing'}", hint)
    return {stage: _samples(file, arrays, f"_{stage}") for stage in stages}


def _read(file: str) -> dict[str, Any]:
    try:
        with np.load(file) as loaded:
            return {name: loaded[name] for name in loaded.files}
    except OSError as error:
        reason = f"it cannot be read ({error.strerror or error})"
    except (ValueError, AttributeError, TypeError, EOFError, zipfile.BadZipFile):
        reason = "it is no .npz file of numbers"
    raise config_error("data.file", file, reason, "the path of an .npz file")


def _samples(file: str, arrays: dict[str, Any], suffix: str) -> Samples:
    x, y = f"x{suffix}", f"y{suffix}"
    inputs = _tensor(file, x, arrays[x])
    if inputs.dtype == torch.uint8 and inputs.dim() == 3:
        inputs = inputs[:, None]
    elif inputs.dtype == torch.uint8 and inputs.dim() == 4 and inputs.shape[3] in (1, 3):
        inputs = inputs.permute(0, 3, 1, 2).contiguous()
    if y not in arrays:
        return inputs
    return inputs, _tensor(file, y, arrays[y])


def _tensor(file: str, name: str, array: Any) -> Tensor:
    """Return bytes and real numbers as they are, other integers as int64."""
    fits, reason = array.ndim > 0 and array.dtype.kind in "biuf", f"{name} is {array.dtype} of shape {array.shape}"
    require(fits, "data.file", file, reason, "numbers, a row for each sample")
    if array.dtype.kind != "f" and array.dtype != np.uint8:
        array = array.astype(np.int64)
    return torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))))
