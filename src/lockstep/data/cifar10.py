"""CIFAR-10: 60,000 colour images of ten classes, from the archive of its binary version.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images.
"""

import tarfile
from io import BytesIO
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from lockstep.data.download import DataFile, fetch
from lockstep.data.tensors import STAGES

ARCHIVE = DataFile(
    "cifar-10-binary.tar.gz", 170_052_171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
)
URL = f"https://www.cs.toronto.edu/~kriz/{ARCHIVE.name}"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
RECORD = 1 + 3 * 32 * 32  # bytes of a sample: its class, then red, green and blue


def cifar10(root: str = "data", val: int = 5000) -> dict[str, TensorDataset]:
    """Return uint8 images (n, 3, 32, 32) and classes by train, val (the last of the 50,000) and test."""
    with tarfile.open(fileobj=BytesIO(fetch(root, ARCHIVE, Path(root) / ARCHIVE.name, [URL]))) as archive:
        files = {Path(member.name).stem: archive.extractfile(member) for member in archive if member.isfile()}
        batches = [files[name].read() for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")]  # type: ignore[union-attr]
    rows = torch.frombuffer(bytearray().join(batches), dtype=torch.uint8).view(-1, RECORD)
    images, targets = rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].long()
    test = len(batches[-1]) // RECORD
    sizes = [len(rows) - val - test, val, test]
    datasets = [*map(TensorDataset, torch.split(images, sizes), torch.split(targets, sizes))]
    for dataset in datasets:
        dataset.classes = CLASSES  # type: ignore[attr-defined]
    return dict(zip(STAGES, datasets, strict=True))
