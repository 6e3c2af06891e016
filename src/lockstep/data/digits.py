"""The 1,797 handwritten digits inside scikit-learn (8×8, 17 grey levels), laid out like MNIST's: real, and no download.

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI repository (its test set).
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

from lockstep.data.tensors import TensorData, split_three

MEAN, STD = 0.1555, 0.2769
"""Of the pixels, from 0 to 1, of the training split."""


def load(val_size: int, test_size: int) -> TensorData:
    """Uint8 images (n, 1, 28, 28) and classes: each digit enlarged to 20×20 and centred, as MNIST's are.

    scikit-learn's rows come writer by writer, so they are shuffled once, by a fixed generator, before the split into
    train, val, test.
    """
    digits = load_digits()
    images = torch.from_numpy(digits.images)[:, None] * (255 / 16)
    images = F.interpolate(images, size=(20, 20), mode="bilinear", align_corners=False)
    images = F.pad(images, (4, 4, 4, 4)).round().to(torch.uint8)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    targets = torch.from_numpy(digits.target).long()
    splits = split_three(images[order], targets[order], val_size, test_size)
    return TensorData(*splits, outputs=10, mean=MEAN, std=STD)
