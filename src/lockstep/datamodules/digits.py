"""The 1,797 handwritten digits inside scikit-learn (8×8, 17 grey levels), laid out like MNIST's: real, and no download.

scikit-learn's file is read here, because importing its loader takes every rank half a second.
Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI repository (its test set).
"""

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from lockstep.datamodules.tensors import InMemory, Split, check_size, split_three

SAMPLES = 1797
MEAN, STD = 0.1555, 0.2769  # the mean and deviation of the training pixels, from 0 to 1


class Digits(InMemory):
    """uint8 images (n, 1, 28, 28) and classes: each digit enlarged to 20×20 and centred, as MNIST's are.

    scikit-learn's rows come writer by writer, so they are shuffled once, by a fixed generator, before the split into
    train, val, test.
    """

    sample_shape, num_outputs, num_classes = (1, 28, 28), 10, 10
    class_names = tuple("0123456789")
    mean, std = MEAN, STD

    def __init__(self, batch_size: int = 64, val_size: int = 180, test_size: int = 360) -> None:
        super().__init__(batch_size)
        check_size("test_size", test_size, SAMPLES, least=1)
        check_size("val_size", val_size, SAMPLES - test_size)
        self.save_hyperparameters(logger=False)
        self.val_size, self.test_size = val_size, test_size

    def load(self) -> dict[str, Split]:
        rows = read_rows()
        images = torch.from_numpy(rows[:, :-1].reshape(-1, 1, 8, 8)) * (255 / 16)
        images = F.interpolate(images, size=(20, 20), mode="bilinear", align_corners=False)
        images = F.pad(images.round().to(torch.uint8), (4, 4, 4, 4))
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        labels = torch.from_numpy(rows[:, -1]).long()
        return split_three(images[order], labels[order], self.val_size, self.test_size)


def read_rows() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return the rows of scikit-learn's file, (1797, 65): 64 pixels from 0 to 16, then the class."""
    package = Path(str(getattr(find_spec("sklearn"), "origin", ""))).parent
    with gzip.open(package / "datasets" / "data" / "digits.csv.gz", "rt") as lines:
        return np.loadtxt(lines, delimiter=",", ndmin=2)
