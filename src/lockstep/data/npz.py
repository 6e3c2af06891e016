"""Arrays in a file of numpy's: x and y, or x_train and y_train with those of test and val."""

import zipfile
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.config_error import config_error, require

Part = Tensor | tuple[Tensor, Tensor]
PARTS = ("train", "val", "test")


def npz(file: str) -> Part | dict[str, Part]:
    """Inputs and targets, or inputs alone where there is no y; by train, val and test where the names say so.

    Bytes (n, height, width) and (n, height, width, channels) are images, which become (n, channels, height, width).

    Raises:
        ConfigError: it cannot be read, or its arrays are named or shaped otherwise.
    """
    arrays = _read(file)
    if "x" in arrays:
        return _part(file, arrays, "x", "y")
    parts = {name: _part(file, arrays, f"x_{name}", f"y_{name}") for name in PARTS if f"x_{name}" in arrays}
    hint = "a file with x and y, or x_train, y_train, x_test, y_test"
    require("train" in parts, "data.file", file, f"it holds {', '.join(arrays) or 'nothing'}", hint)
    return parts


def _read(file: str) -> dict[str, Any]:
    try:
        with np.load(file) as loaded:
            return {name: loaded[name] for name in loaded.files}
    except OSError as error:
        reason = f"it cannot be read ({error.strerror or error})"
    except (ValueError, AttributeError, TypeError, EOFError, zipfile.BadZipFile):
        reason = "it is no .npz file of numbers"
    raise config_error("data.file", file, reason, "the path of an .npz file")


def _part(file: str, arrays: dict[str, Any], x: str, y: str) -> Part:
    inputs = _tensor(file, x, arrays[x])
    if inputs.dtype == torch.uint8 and inputs.dim() == 3:
        inputs = inputs[:, None]
    elif inputs.dtype == torch.uint8 and inputs.dim() == 4 and inputs.shape[3] in (1, 3):
        inputs = inputs.permute(0, 3, 1, 2).contiguous()
    if y not in arrays:
        return inputs
    target = _tensor(file, y, arrays[y])
    reason = f"{x} has {len(inputs)} rows and {y} {len(target)}"
    require(len(target) == len(inputs), "data.file", file, reason, "as many of both")
    return inputs, target


def _tensor(file: str, name: str, array: Any) -> Tensor:
    """Bytes and real numbers as they are, other whole numbers as int64."""
    fits, reason = array.ndim > 0 and array.dtype.kind in "biuf", f"{name} is {array.dtype} of shape {array.shape}"
    require(fits, "data.file", file, reason, "numbers, a row for each sample")
    if array.dtype.kind != "f" and array.dtype != np.uint8:
        array = array.astype(np.int64)
    if array.dtype == np.longdouble:
        array = array.astype(np.float64)
    return torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))))
