"""A multilayer perceptron: affine maps with ReLU between (S0's 2-30-20-2 is `hidden=(30, 20)` on points)."""

import math
from itertools import pairwise

from torch import Tensor, nn


class MLP(nn.Module):
    """(batch, *shape) → (batch, outputs), through layers of the `hidden` sizes."""

    def __init__(self, shape: tuple[int, ...], outputs: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        sizes = (math.prod(shape), *hidden)
        layers: list[nn.Module] = []
        for inward, outward in pairwise(sizes):
            layers += [nn.Linear(inward, outward), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x.flatten(1))
        return y
