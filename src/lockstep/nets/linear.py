"""One affine map: linear regression, or softmax regression on images."""

import math

from torch import Tensor, nn


class Linear(nn.Module):
    """(batch, *shape) → (batch, outputs)."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.affine = nn.Linear(math.prod(shape), outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.affine(x.flatten(1))
        return y
