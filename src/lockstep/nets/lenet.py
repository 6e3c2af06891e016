"""Two nets of two 5×5 convolutions and two affine maps, for MNIST (docs/sources.md, three ways to be parallel)."""

from torch import Tensor, nn

from lockstep.base.config_error import require
from lockstep.nets.cnn import check_images


class LeNet(nn.Module):
    """(batch, channels, height, width) → (batch, num_outputs), with dropout; 21,840 parameters on MNIST."""

    def __init__(self, sample_shape: tuple[int, ...], num_outputs: int, dropout: float = 0.5) -> None:
        super().__init__()
        key, reason = "model.net.dropout", "it must be at least 0 and below 1"
        require(0 <= dropout < 1, key, dropout, reason, f"{key}=0.5")
        check_images("LeNet", sample_shape)
        channels, *_ = sample_shape
        self.features = nn.Sequential(
            nn.Conv2d(channels, 10, 5),  # 24×24
            nn.MaxPool2d(2),  # 12×12
            nn.ReLU(),
            nn.Conv2d(10, 20, 5),  # 8×8
            nn.Dropout2d(dropout),
            nn.MaxPool2d(2),  # 4×4
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),  # of larger images
        )
        self.head = nn.Sequential(nn.Linear(320, 50), nn.ReLU(), nn.Dropout(dropout), nn.Linear(50, num_outputs))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).flatten(1))  # type: ignore[no-any-return]


class SplitCNN(nn.Module):
    """(batch, channels, height, width) → (batch, num_outputs), for `strategy=model_parallel`.

    `stages` names its parts in order, for a strategy that spreads them; here they run one after the other.
    """

    def __init__(self, sample_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__()
        check_images("SplitCNN", sample_shape)
        channels, *_ = sample_shape
        self.block1 = nn.Sequential(nn.Conv2d(channels, 10, 5), nn.ReLU(), nn.MaxPool2d(2))  # 12×12
        self.block2 = nn.Sequential(
            nn.Conv2d(10, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(4), nn.Flatten()
        )
        self.linear1 = nn.Sequential(nn.Linear(320, 50), nn.ReLU())
        self.linear2 = nn.Linear(50, num_outputs)

    @property
    def stages(self) -> tuple[nn.Module, ...]:
        return self.block1, self.block2, self.linear1, self.linear2

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        return x
