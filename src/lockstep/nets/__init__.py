"""The nets: pure modules, built from the data's shape alone, without rank, device, logger or engine."""

from torch import nn


def pool_to_4x4(shape: tuple[int, ...]) -> list[nn.Module]:
    """Return the layer after two convolutional stages that makes 4×4 features of images of any size.

    Images of 28×28 need none.
    """
    return [] if shape[1:] == (28, 28) else [nn.AdaptiveAvgPool2d(4)]
