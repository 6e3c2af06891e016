"""CIFAR-10: 60,000 colour images of ten classes, from the archive or the folder of its binary or Python version.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images.
"""

import codecs
import io
import pickle
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.config_error import require
from lockstep.data.download import DataFile, download

ARCHIVE = DataFile(
    "cifar-10-binary.tar.gz", 170_052_171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
)
URL = f"https://www.cs.toronto.edu/~kriz/{ARCHIVE.name}"

SIDE, CLASSES = 32, 10
RECORD = 1 + 3 * SIDE * SIDE
"""Bytes of a sample in the binary version: its class, then red, green and blue."""
BINARY = ("cifar-10-batches-bin", ARCHIVE.name)
PYTHON = ("cifar-10-batches-py", "cifar-10-python.tar.gz")
TRAIN, TEST = [f"data_batch_{number}" for number in range(1, 6)], "test_batch"


def cifar10(root: str = "data", val: int = 5000) -> dict[str, tuple[Tensor, Tensor]]:
    """Return uint8 images (n, 3, 32, 32) and classes by train, val and test; download the archive if it is missing.

    Args:
        val: so many of the last training images validate.

    Raises:
        ConfigError: the archive is damaged, or missing and cannot be downloaded.
    """
    folder = Path(root)
    places = [folder / name for name in (*BINARY, *PYTHON)]
    if not any(path.exists() for path in places):
        download("cifar10", folder, folder, {ARCHIVE: [URL]}, packed=False)
    path = next(path for path in places if path.exists())
    parse = _from_binary if path.name in BINARY else _from_python
    batches, reason = {}, ""
    try:
        for name, content in _contents(path):
            if name in (*TRAIN, TEST):
                batches[name] = parse(content)
    except (OSError, EOFError, ValueError, KeyError, zlib.error, tarfile.TarError, pickle.UnpicklingError) as error:
        reason = str(error) or type(error).__name__
    reason = reason or next((f"{name} is not there" for name in (*TRAIN, TEST) if name not in batches), "")
    hint = f"the folder of another {ARCHIVE.name}, or remove it to have it downloaded"
    require(not reason, "data.root", root, f"{path} is damaged ({reason})", hint)
    images, targets = map(torch.cat, zip(*(batches[name] for name in TRAIN), strict=True))
    train = len(images) - val
    training, validation = (images[:train], targets[:train]), (images[train:], targets[train:])
    return {"train": training, "val": validation, "test": batches[TEST]}


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a folder or an archive by their names without .bin."""
    if path.is_dir():
        for file in path.iterdir():
            yield file.name.removesuffix(".bin"), file.read_bytes()
        return
    with tarfile.open(path) as archive:
        for member in archive:
            if stream := archive.extractfile(member):
                yield Path(member.name).name.removesuffix(".bin"), stream.read()


def _from_binary(content: bytes) -> tuple[Tensor, Tensor]:
    if not content or len(content) % RECORD:
        raise ValueError(f"{len(content)} bytes are not a multiple of {RECORD}")
    rows = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, RECORD)
    return _checked(rows[:, 1:], rows[:, 0].long())


def _from_python(content: bytes) -> tuple[Tensor, Tensor]:
    batch = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    return _checked(torch.from_numpy(np.array(batch[b"data"], np.uint8)), torch.tensor(batch[b"labels"]))


def _checked(pixels: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    if pixels.shape != (len(targets), RECORD - 1) or targets.max() >= CLASSES or targets.min() < 0:
        raise ValueError(f"pixels of shape {tuple(pixels.shape)} and {len(targets)} classes")
    return pixels.reshape(-1, 3, SIDE, SIDE).contiguous(), targets


class _ArrayUnpickler(pickle.Unpickler):
    """An unpickler that calls nothing but the functions that make numpy's arrays: a pickle may name any other."""

    def find_class(self, module: str, name: str) -> Any:
        key = f"{module.removeprefix('numpy.core.').removeprefix('numpy._core.')}.{name}"
        if key not in ALLOWED:
            raise pickle.UnpicklingError(f"it would call {module}.{name}")
        return ALLOWED[key]


ALLOWED: dict[str, Any] = {
    "multiarray._reconstruct": np.zeros(0).__reduce__()[0],
    "numeric._frombuffer": np.zeros(0).__reduce_ex__(5)[0],
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
    "_codecs.encode": codecs.encode,
}
