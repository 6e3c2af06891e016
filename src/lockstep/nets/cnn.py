"""SimpleCNN: four 3×3 convolutions without padding, then three affine maps (docs/sources.md, the long notebook)."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from lockstep.base.config_error import require

MIN_SIDE = 16  # the least height and width of which the convolutions of the nets for images leave something


class CNN(nn.Module):
    """(batch, channels, height, width) → (batch, num_outputs). Sizes in comments are of 28×28 images.

    Before BatchNorm a convolution has no bias: it would cancel, its gradient would be rounding noise, and Adam would
    amplify it, differently for each number of ranks.

    Args:
        norm: batch puts BatchNorm after each convolution.
    """

    def __init__(
        self, sample_shape: tuple[int, ...], num_outputs: int, norm: Literal["batch", "none"] = "batch"
    ) -> None:
        super().__init__()
        require(norm in ("batch", "none"), "model.net.norm", norm, "it is no norm", "model.net.norm=batch, or none")
        check_images("CNN", sample_shape)
        channels, *_ = sample_shape
        self.features = nn.Sequential(
            *_convolution(channels, 16, norm),  # 26×26
            *_convolution(16, 32, norm),  # 24×24
            nn.MaxPool2d(2),  # 12×12
            *_convolution(32, 64, norm),  # 10×10
            *_convolution(64, 128, norm),  # 8×8
            nn.MaxPool2d(2),  # 4×4
            nn.AdaptiveAvgPool2d(4),  # of larger images
        )
        self.head = nn.Sequential(
            nn.Linear(128 * 4 * 4, 1024), nn.ReLU(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, num_outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).flatten(1))  # type: ignore[no-any-return]


def check_images(net: str, sample_shape: Sequence[int]) -> None:
    """Raise unless samples are images that are large enough."""
    hint = "model=mlp or model=linear, or data=digits"
    shape = tuple(sample_shape)
    require(len(shape) == 3, "model.net", net, f"it takes images, and the data has samples of shape {shape}", hint)
    reason = f"it takes images of {MIN_SIDE}×{MIN_SIDE} or more, and those of the data are {shape[1]}×{shape[2]}"
    require(min(shape[1:]) >= MIN_SIDE, "model.net", net, reason, "model=mlp or model=linear, or larger images")


def _convolution(inward: int, outward: int, norm: str) -> list[nn.Module]:
    if norm == "batch":
        return [nn.Conv2d(inward, outward, 3, bias=False), nn.BatchNorm2d(outward), nn.ReLU(inplace=True)]
    return [nn.Conv2d(inward, outward, 3), nn.ReLU(inplace=True)]
