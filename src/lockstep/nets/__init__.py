"""The nets: pure modules, built from the data's shape alone, without rank, device, logger or engine."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from torch import nn

from lockstep.config_error import require

if TYPE_CHECKING:
    from lockstep.nets.char_rnn import CharRNN
    from lockstep.nets.cnn import CNN
    from lockstep.nets.lenet import LeNet
    from lockstep.nets.linear import Linear
    from lockstep.nets.mlp import MLP
    from lockstep.nets.split_cnn import SplitCNN

__all__ = ["CNN", "MLP", "CharRNN", "LeNet", "Linear", "SplitCNN"]

FILES = {
    **{"CNN": "cnn", "MLP": "mlp", "CharRNN": "char_rnn", "LeNet": "lenet", "Linear": "linear"},
    "SplitCNN": "split_cnn",
}
MIN_SIDE = 16  # the least height and width of which the convolutions of the nets for images leave something


def __getattr__(name: str) -> Any:
    if name not in FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{FILES[name]}"), name)


def check_images(net: str, sample_shape: Sequence[int]) -> None:
    """Raise unless samples are images that are large enough."""
    hint = "model=mlp or model=linear, or data=digits"
    shape = tuple(sample_shape)
    require(len(shape) == 3, "model.net", net, f"it takes images, and the data has samples of shape {shape}", hint)
    reason = f"it takes images of {MIN_SIDE}×{MIN_SIDE} or more, and those of the data are {shape[1]}×{shape[2]}"
    require(min(shape[1:]) >= MIN_SIDE, "model.net", net, reason, "model=mlp or model=linear, or larger images")


def pool_to_4x4(sample_shape: Sequence[int]) -> list[nn.Module]:
    """Return the layer after two convolutional stages that makes 4×4 features of images of any size.

    Images of 28×28 need none.
    """
    return [] if tuple(sample_shape[1:]) == (28, 28) else [nn.AdaptiveAvgPool2d(4)]
