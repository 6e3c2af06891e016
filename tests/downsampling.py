"""A small ResNet as a stranger writes it, with 1x1 shortcuts of stride 2, in the place of model=cnn."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from torch import Tensor, nn

from lockstep import schemas
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.run_files import Metrics
from tests.rank_helpers import ENGINES, with_engine


class Block(nn.Module):
    """(batch, inward, n, n) → (batch, outward, n/2, n/2)."""

    def __init__(self, inward: int, outward: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(inward, outward, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outward)
        )
        self.shortcut = nn.Conv2d(inward, outward, 1, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = (self.main(x) + self.shortcut(x)).relu()
        return y


class SmallResNet(nn.Module):
    """(batch, channels, 28, 28) → (batch, outputs)."""

    def __init__(self, shape: tuple[int, ...], outputs: int, norm: Literal["batch", "none"] = "batch") -> None:
        super().__init__()
        channels, *_ = shape
        self.blocks = nn.Sequential(nn.Conv2d(channels, 8, 3, padding=1), Block(8, 12), Block(12, 24))
        self.head = nn.Linear(24, outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.blocks(x).mean((2, 3)))
        return y


def run_both(plan: Plan, context: RankContext) -> Metrics:
    """On a rank: the net by both engines in float32, and by raw in float64 (in batches of ten), in folders of those
    names.
    """
    schemas.CNN.path = f"{__name__}.{SmallResNet.__name__}"
    for engine in ENGINES:
        ENGINES[engine](with_engine(plan, engine, Path(plan.run_dir) / engine), context)
    wide = with_engine(replace(plan, precision="64-true", batch_size=10), "raw", Path(plan.run_dir) / "float64")
    return ENGINES["raw"](wide, context)
