"""MNIST: 70,000 handwritten digits, read and, if they are missing, downloaded by torchvision.

Source: Y. LeCun, C. Cortes, C. Burges, The MNIST Database of Handwritten Digits.
"""

import hashlib

from torchvision import datasets

from lockstep.base.config_error import require
from lockstep.datamodules.download import download
from lockstep.datamodules.tensors import InMemory, Split, split_in_order

SAMPLES = 60_000  # to train and validate
SHA256 = "06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16"
"""Of all pixels and labels: torchvision checks files that are still packed, and no others."""


class MNIST(InMemory):
    """uint8 images (n, 1, 28, 28) and classes: the first `samples` and last `val_size` of 60,000; 10,000 to test."""

    sample_shape, num_outputs, num_classes = (1, 28, 28), 10, 10
    class_names = tuple("0123456789")

    def __init__(
        self,
        root: str = "data",
        batch_size: int = 64,
        samples: int | None = None,
        val_size: int = 5000,
        mean: float = 0.1307,
        std: float = 0.3081,
    ) -> None:
        """`root`: the folder that holds MNIST/raw, or gets it. `samples`: to train on; None: all but `val_size`."""
        super().__init__(batch_size)
        most = SAMPLES - val_size
        fits = samples is None or 1 <= samples <= most
        require(fits, "data.samples", samples, f"it must be from 1 to {most}", f"data.samples={most // 10}")
        require(std > 0, "data.std", std, "it must be above 0", "data.std=0.3081")
        self.save_hyperparameters(logger=False)
        self.root, self.samples, self.val_size, self.mean, self.std = root, samples, val_size, mean, std

    def prepare_data(self) -> None:
        """Download missing files below `root`, and check all."""
        digest = hashlib.sha256()
        for split in download(datasets.MNIST, self.root):
            digest.update(split.data.numpy())
            digest.update(split.targets.byte().numpy())
        hint = "data.root=FOLDER, which holds those of MNIST/raw"
        require(digest.hexdigest() == SHA256, "data.root", self.root, "its files are not those of MNIST", hint)

    def load(self) -> dict[str, Split]:
        train, test = datasets.MNIST(self.root), datasets.MNIST(self.root, train=False)
        splits = split_in_order(train.data[:, None], train.targets, self.val_size)
        inputs, targets = splits["train"]
        splits["train"] = inputs[: self.samples], targets[: self.samples]
        return splits | {"test": (test.data[:, None], test.targets)}
