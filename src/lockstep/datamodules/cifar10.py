"""CIFAR-10: 60,000 colour images of ten classes, read and, if they are missing, downloaded by torchvision.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images.
"""

from typing import Any

import torch
from torch import Tensor
from torchvision import datasets

from lockstep.datamodules.download import download
from lockstep.datamodules.tensors import InMemory, Split, split_in_order


class CIFAR10(InMemory):
    """uint8 images (n, 3, 32, 32) and classes; the last `val_size` of the 50,000 validate."""

    sample_shape, num_outputs, num_classes = (3, 32, 32), 10, 10
    class_names = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

    def __init__(self, root: str = "data", batch_size: int = 64, val_size: int = 5000) -> None:
        """`root`: the folder that holds the archive, or gets it."""
        super().__init__(batch_size)
        self.save_hyperparameters(logger=False)
        self.root, self.val_size = root, val_size

    def prepare_data(self) -> None:
        """Download and unpack the archive below `root` if it is missing."""
        download(datasets.CIFAR10, self.root)

    def load(self) -> dict[str, Split]:
        train, test = (_tensors(datasets.CIFAR10(self.root, train=is_train)) for is_train in (True, False))
        return split_in_order(*train, self.val_size) | {"test": test}


def _tensors(data: Any) -> tuple[Tensor, Tensor]:
    images = torch.from_numpy(data.data).permute(0, 3, 1, 2)  # channels are last in torchvision's
    return images.contiguous(), torch.tensor(data.targets)
