"""CIFAR-10: 60,000 colour images of ten classes, from the archive of its binary version.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images.
"""

import tarfile
from io import BytesIO
from pathlib import Path

import torch

from lockstep.datamodules.download import DataFile, fetch
from lockstep.datamodules.tensors import InMemory, Split, check_size, split_three

ARCHIVE = DataFile(
    "cifar-10-binary.tar.gz", 170_052_171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
)
URL = f"https://www.cs.toronto.edu/~kriz/{ARCHIVE.name}"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SAMPLES = 50_000  # to train and validate
RECORD = 1 + 3 * 32 * 32  # bytes of a sample: its class, then red, green and blue


class CIFAR10(InMemory):
    """uint8 images (n, 3, 32, 32) and classes; the last `val_size` of the 50,000 validate."""

    sample_shape, num_outputs, num_classes = (3, 32, 32), 10, 10
    class_names = CLASSES

    def __init__(self, root: str = "data", batch_size: int = 64, val_size: int = 5000) -> None:
        """`root`: the folder that holds the archive, or gets it."""
        super().__init__(batch_size)
        check_size("val_size", val_size, SAMPLES)
        self.save_hyperparameters(logger=False)
        self.root, self.val_size = root, val_size

    def prepare_data(self) -> None:
        """Check the archive below `root`; download it if it is missing."""
        self._archive()

    def _archive(self) -> bytearray:
        return fetch(self.root, ARCHIVE, Path(self.root) / ARCHIVE.name, [URL])

    def load(self) -> dict[str, Split]:
        with tarfile.open(fileobj=BytesIO(self._archive())) as archive:
            files = {Path(member.name).stem: archive.extractfile(member) for member in archive if member.isfile()}
            names = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
            batches = [files[name].read() for name in names]  # type: ignore[union-attr]
        rows = torch.frombuffer(bytearray().join(batches), dtype=torch.uint8).view(-1, RECORD)
        images, targets = rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].long()
        return split_three(images, targets, self.val_size, len(batches[-1]) // RECORD)
