"""The 1,797 handwritten digits inside scikit-learn (8×8, 17 grey levels), laid out like MNIST's: real, and no download.

scikit-learn's file is read here, because importing its loader takes every rank half a second.
Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI repository (its test set).
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from lockstep.datamodules.tensors import InMemory, Split, split_rows

SAMPLES = 1797


class Digits(InMemory):
    """uint8 images (n, 1, 28, 28) and classes: each digit enlarged to 20×20 and centred, as MNIST's are.

    scikit-learn's rows come writer by writer, so they are shuffled once before the split into train, val, test.
    """

    sample_shape, num_outputs, num_classes = (1, 28, 28), 10, 10
    class_names = tuple("0123456789")
    mean, std = 0.1555, 0.2769  # of the training pixels, from 0 to 1

    def __init__(self, batch_size: int = 64, val_size: float = 180, test_size: float = 360) -> None:
        """Sizes are samples, or shares below 1."""
        super().__init__(batch_size)
        self.save_hyperparameters(logger=False)
        self.rows = split_rows(SAMPLES, val_size, test_size)

    def load(self) -> dict[str, Split]:
        table = read_table()
        images = torch.from_numpy(table[:, :-1].reshape(-1, 1, 8, 8)) * (255 / 16)
        images = F.interpolate(images, size=(20, 20), mode="bilinear", align_corners=False)
        images = F.pad(images.round().to(torch.uint8), (4, 4, 4, 4))
        labels = torch.from_numpy(table[:, -1]).long()
        return {stage: (images[rows], labels[rows]) for stage, rows in self.rows.items()}


def read_table() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return the rows of scikit-learn's file, (1797, 65): 64 pixels from 0 to 16, then the class."""
    package = Path(str(getattr(find_spec("sklearn"), "origin", ""))).parent
    return np.loadtxt(package / "datasets" / "data" / "digits.csv.gz", delimiter=",", ndmin=2)
