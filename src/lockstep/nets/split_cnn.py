"""The model-parallel net of the source (S1): two convolutional stages and two affine maps, each of which can have a
device of its own. `stages` names them in order, for a strategy that spreads them; here they run one after the other.
"""

from torch import Tensor, nn

from lockstep.nets.cnn import check_images, pool_to_4x4


class SplitCNN(nn.Module):
    """(batch, channels, height, width) → (batch, num_outputs)."""

    def __init__(self, sample_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__()
        check_images("SplitCNN", sample_shape)
        channels, *_ = sample_shape
        self.block1 = nn.Sequential(nn.Conv2d(channels, 10, 5), nn.ReLU(), nn.MaxPool2d(2))  # 12×12
        self.block2 = nn.Sequential(
            nn.Conv2d(10, 20, 5), nn.ReLU(), nn.MaxPool2d(2), *pool_to_4x4(sample_shape), nn.Flatten()
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
