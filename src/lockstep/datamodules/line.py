"""y = slope·x + intercept + noise·ε, x and ε standard normal: the regression whose answer is known."""

from collections.abc import Sequence

import torch

from lockstep.base.config_error import require
from lockstep.datamodules.tensors import InMemory, Split, split_in_order

TEST_SAMPLES = 1000


class Line(InMemory):
    """float64 columns x and y: `samples` to train on (or `inputs`), then `val_size`, then 1,000 to test.

    They are always the same.
    """

    sample_shape, num_outputs = (1,), 1

    def __init__(
        self,
        batch_size: int = 64,
        slope: float = 2.0,
        intercept: float = 3.0,
        noise: float = 0.1,
        samples: int = 10000,
        inputs: Sequence[float] = (),
        val_size: int = 1000,
    ) -> None:
        """`inputs`: the x to train on in place of random ones."""
        super().__init__(batch_size)
        require(samples >= 1, "data.samples", samples, "it must be 1 or more", "data.samples=10000")
        self.save_hyperparameters(logger=False)
        self.slope, self.intercept, self.noise = slope, intercept, noise
        self.samples, self.inputs, self.val_size = samples, [*inputs], val_size

    def load(self) -> dict[str, Split]:
        generator = torch.Generator().manual_seed(0)
        total = (len(self.inputs) or self.samples) + self.val_size + TEST_SAMPLES
        x, epsilon = torch.randn(2, total, 1, generator=generator, dtype=torch.float64)
        x[: len(self.inputs), 0] = torch.tensor(self.inputs, dtype=torch.float64)
        y = self.slope * x + self.intercept + self.noise * epsilon
        return split_in_order(x, y, self.val_size, TEST_SAMPLES)
