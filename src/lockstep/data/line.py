"""y = slope·x + intercept + noise·ε, x and ε standard normal (S2): the regression whose answer is known."""

import torch

from lockstep.data.tensors import TensorData, split_three

TEST_SAMPLES = 1000


def load(slope: float, intercept: float, noise: float, samples: int, val_size: int) -> TensorData:
    """Float64 columns x and y: `samples` to train on, then `val_size`, then 1,000 to test, from one fixed generator."""
    generator = torch.Generator().manual_seed(0)
    total = samples + val_size + TEST_SAMPLES
    x, epsilon = torch.randn(2, total, 1, generator=generator, dtype=torch.float64)
    y = slope * x + intercept + noise * epsilon
    return TensorData(*split_three(x, y, val_size, TEST_SAMPLES), outputs=1)
