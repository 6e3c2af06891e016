"""One affine map: linear regression, or softmax regression on images."""

import math

from torch import Tensor, nn


class Linear(nn.Module):
    """(batch, *sample_shape) → (batch, num_outputs)."""

    def __init__(self, sample_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__()
        self.affine = nn.Linear(math.prod(sample_shape), num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.affine(x.flatten(1))  # type: ignore[no-any-return]
