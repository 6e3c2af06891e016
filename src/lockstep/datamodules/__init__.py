"""LightningDataModules: copy one, and change what you like. `batch_size` is the number of samples over all devices.

Each has `sample_shape`, `num_outputs` and, if targets are classes, `num_classes` and `class_names`.
"""

from typing import TYPE_CHECKING

from lockstep.base.lazy import lazy_names

if TYPE_CHECKING:
    from lockstep.datamodules.cifar10 import CIFAR10 as CIFAR10
    from lockstep.datamodules.csv_file import CSV as CSV
    from lockstep.datamodules.datasets import Datasets as Datasets
    from lockstep.datamodules.digits import Digits as Digits
    from lockstep.datamodules.image_folder import ImageFolder as ImageFolder
    from lockstep.datamodules.line import Line as Line
    from lockstep.datamodules.mnist import MNIST as MNIST
    from lockstep.datamodules.npz import NPZ as NPZ
    from lockstep.datamodules.points import Points as Points
    from lockstep.datamodules.random_regression import RandomRegression as RandomRegression
    from lockstep.datamodules.text import Text as Text

__getattr__, __dir__ = lazy_names(
    __name__,
    "cifar10.CIFAR10 csv_file.CSV datasets.Datasets digits.Digits image_folder.ImageFolder line.Line",
    "mnist.MNIST npz.NPZ points.Points random_regression.RandomRegression text.Text",
)
