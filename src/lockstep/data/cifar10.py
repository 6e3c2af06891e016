"""CIFAR-10: 60,000 colour images of ten classes, from the archive or the folder of its binary or Python version.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images.
"""

import codecs
import hashlib
import io
import pickle
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.config_error import ConfigError, config_error, require
from lockstep.data.download import download, downloading

ARCHIVE = "cifar-10-binary.tar.gz"
URL = f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}"
SIZE = 170_052_171
SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"

SIDE, CLASSES = 32, 10
RECORD = 1 + 3 * SIDE * SIDE
"""Bytes of a sample in the binary version: its class, then red, green and blue."""
VERSIONS = {
    "binary": ("cifar-10-batches-bin", ARCHIVE, ".bin"),
    "python": ("cifar-10-batches-py", "cifar-10-python.tar.gz", ""),
}
"""By version the folder, the archive that holds it, and how its files' names end."""
TRAIN, TEST = tuple(f"data_batch_{number}" for number in range(1, 6)), ("test_batch",)


def cifar10(root: str = "data", val: int = 5000) -> dict[str, tuple[Tensor, Tensor]]:
    """Uint8 images (n, 3, 32, 32) and classes, by train, val and test; the archive is downloaded where there is none.

    Args:
        val: so many of the last training images validate.

    Raises:
        ConfigError: the archive is damaged, or missing and cannot be downloaded.
    """
    folder = Path(root)
    if not any(path.exists() for _, path in _places(folder)):
        with downloading(folder, folder, ".cifar10.lock", files=2):
            if not (folder / ARCHIVE).exists():  # another process may have just done so
                download("cifar10", folder, folder / ARCHIVE, [URL], SIZE + 1, _problem)
    (images, targets), tested = _read(folder)
    train = len(images) - val
    reason, hint = f"it leaves nothing of {len(images)} images to train on", "data.val=5000"
    require(0 <= val < len(images), "data.val", val, reason, hint)
    return {"train": (images[:train], targets[:train]), "val": (images[train:], targets[train:]), "test": tested}


def _problem(content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    return "" if digest == SHA256 else f"its SHA-256 is {digest}"


def _places(root: Path) -> list[tuple[str, Path]]:
    """Return where a version may lie below root, unpacked or not."""
    return [(version, root / name) for version, names in VERSIONS.items() for name in names[:2]]


def _read(root: Path) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return images and classes to train on and to test on."""
    version, path = next((version, path) for version, path in _places(root) if path.exists())
    folder, _, ending = VERSIONS[version]
    parse = _from_binary if version == "binary" else _from_python
    files = {}
    try:
        if path.is_dir():
            files = {name: parse((path / f"{name}{ending}").read_bytes()) for name in (*TRAIN, *TEST)}
        else:
            with tarfile.open(path) as archive:
                for member in archive:
                    name = Path(member.name).name.removesuffix(ending)
                    in_folder = Path(member.name).parent.name == folder and name in (*TRAIN, *TEST)
                    if in_folder and (content := archive.extractfile(member)):
                        files[name] = parse(content.read())
    except (OSError, EOFError, ValueError, KeyError, zlib.error, tarfile.TarError, pickle.UnpicklingError) as error:
        raise _damaged(root, path, str(error) or type(error).__name__) from None
    if missing := [name for name in (*TRAIN, *TEST) if name not in files]:
        raise _damaged(root, root, f"{missing[0]} is not there")
    images, targets = zip(*(files[name] for name in TRAIN), strict=True)
    return (torch.cat(images), torch.cat(targets)), files[TEST[0]]


def _from_binary(content: bytes) -> tuple[Tensor, Tensor]:
    if not content or len(content) % RECORD:
        raise ValueError(f"{len(content)} bytes are no whole images of {RECORD}")
    rows = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, RECORD)
    return _checked(rows[:, 1:], rows[:, 0].long())


def _from_python(content: bytes) -> tuple[Tensor, Tensor]:
    held = _OnlyArrays(io.BytesIO(content), encoding="bytes").load()
    return _checked(torch.from_numpy(np.array(held[b"data"], np.uint8)), torch.tensor(held[b"labels"]))


def _checked(pixels: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    if pixels.shape != (len(targets), RECORD - 1) or targets.max() >= CLASSES or targets.min() < 0:
        raise ValueError(f"pixels of shape {tuple(pixels.shape)} and {len(targets)} classes")
    return pixels.reshape(-1, 3, SIDE, SIDE).contiguous(), targets


class _OnlyArrays(pickle.Unpickler):
    """A pickle may name any function to call; the archive's names what makes numpy's arrays, and that alone."""

    def find_class(self, module: str, name: str) -> Any:
        key = module.removeprefix("numpy.core.").removeprefix("numpy._core."), name
        if key in ALLOWED:
            return ALLOWED[key]
        raise pickle.UnpicklingError(f"it would call {module}.{name}")


ALLOWED: dict[tuple[str, str], Any] = {
    ("multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
    ("numeric", "_frombuffer"): np.zeros(0).__reduce_ex__(5)[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,
}


def _damaged(root: Path, path: Path, reason: str) -> ConfigError:
    hint = f"the folder of another {ARCHIVE}, or remove it to have it downloaded"
    return config_error("data.root", root, f"{path} is damaged ({reason})", hint)
