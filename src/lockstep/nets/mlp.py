"""One affine map, and several with ReLU between: a multilayer perceptron."""

import math
from collections.abc import Sequence
from itertools import cycle, pairwise

from torch import Tensor, nn

from lockstep.base.config_error import require


class Linear(nn.Module):
    """(batch, *sample_shape) → (batch, num_outputs): linear regression, or softmax regression on images."""

    def __init__(self, sample_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__()
        self.affine = nn.Linear(math.prod(sample_shape), num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.affine(x.flatten(1))  # type: ignore[no-any-return]


class MLP(nn.Module):
    """(batch, *sample_shape) → (batch, num_outputs), through layers of the `hidden` sizes, such as (30, 20).

    num_outputs: None: as many as a sample has numbers.
    """

    def __init__(self, sample_shape: tuple[int, ...], num_outputs: int | None, hidden: Sequence[int]) -> None:
        super().__init__()
        fits = isinstance(hidden, Sequence) and all(isinstance(size, int) and size > 0 for size in hidden)
        reason, hint = "it lists layer sizes of 1 or more", "model.net.hidden=[30,20]"
        require(fits and len(hidden) > 0, "model.net.hidden", hidden, reason, hint)
        inputs = math.prod(sample_shape)
        sizes = (inputs, *hidden)
        layers: list[nn.Module] = []
        for inward, outward in pairwise(sizes):
            layers += [nn.Linear(inward, outward), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], num_outputs or inputs))

    @property
    def stages(self) -> tuple[nn.Module, ...]:
        return nn.Sequential(nn.Flatten(), self.layers[0]), *self.layers[1:]

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.flatten(1))  # type: ignore[no-any-return]

    def tensor_parallel_plan(self, ranks: int) -> dict[str, str]:
        """Return how strategy=tensor_parallel divides the layers: two by two, without an odd last one."""
        names = [f"layers.{index}" for index in range(0, len(self.layers), 2)]
        return dict(zip(names[: len(names) // 2 * 2], cycle(("colwise", "rowwise")), strict=False))
