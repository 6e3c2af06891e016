"""LightningDataModules: copy one, and change what you like. `batch_size` is the number of samples over all devices.

Each has `sample_shape`, `num_outputs` and, if targets are classes, `num_classes` and `class_names`.
"""

from lockstep.datamodules.cifar10 import CIFAR10
from lockstep.datamodules.datasets import Datasets
from lockstep.datamodules.digits import Digits
from lockstep.datamodules.image_folder import ImageFolder
from lockstep.datamodules.line import Line
from lockstep.datamodules.mnist import MNIST
from lockstep.datamodules.npz import NPZ
from lockstep.datamodules.points import Points
from lockstep.datamodules.random_regression import RandomRegression
from lockstep.datamodules.text import Text

__all__ = [
    "CIFAR10",
    "MNIST",
    "NPZ",
    "Datasets",
    "Digits",
    "ImageFolder",
    "Line",
    "Points",
    "RandomRegression",
    "Text",
]
