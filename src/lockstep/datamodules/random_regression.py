"""Random rows with real targets: a hidden linear map of standard normal features, and noise."""

import torch

from lockstep.base.config_error import require
from lockstep.datamodules.tensors import InMemory, Split, split_in_order

TEST_SAMPLES = 1000


class RandomRegression(InMemory):
    """float64 rows (n, features) and targets (n, outputs), always the same: 1,000 of them to test."""

    def __init__(
        self, batch_size: int = 64, features: int = 5, outputs: int = 2, noise: float = 0.1, samples: int = 90
    ) -> None:
        super().__init__(batch_size)
        for name, value in (("features", features), ("outputs", outputs), ("samples", samples)):
            require(value >= 1, f"data.{name}", value, "it must be 1 or more", f"data.{name}=10")
        self.save_hyperparameters(logger=False)
        self.sample_shape, self.num_outputs = (features,), outputs
        self.noise, self.samples = noise, samples

    def load(self) -> dict[str, Split]:
        generator, (features,) = torch.Generator().manual_seed(0), self.sample_shape
        slopes = torch.randn(features, self.num_outputs, generator=generator, dtype=torch.float64)
        rows = torch.randn(self.samples + TEST_SAMPLES, features, generator=generator, dtype=torch.float64)
        targets = rows @ slopes
        targets += self.noise * torch.randn(targets.shape, generator=generator, dtype=torch.float64)
        return split_in_order(rows, targets, 0, TEST_SAMPLES)
