"""LightningDataModules: copy one, and change what you like. `batch_size` is the number of samples over all devices.

Each has `sample_shape`, `num_outputs` and, if targets are classes, `num_classes` and `class_names`.
A file is imported on first use: that of ImageFolder imports torchvision.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    file = {"ImageFolder": "image_folder", "RandomRegression": "random_regression"}.get(name, name.lower())
    return getattr(import_module(f"{__name__}.{file}"), name)


def __dir__() -> list[str]:
    return __all__
