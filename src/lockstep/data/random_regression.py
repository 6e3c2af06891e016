"""Random rows with real targets (S3, S4): a hidden linear map of standard normal features, and noise."""

import torch

from lockstep.data.samples import Splits, split_three

TEST_SAMPLES = 1000


def load(features: int, outputs: int, noise: float, samples: int) -> Splits:
    """Return float64 rows (n, features) and targets (n, outputs), always the same: 1,000 of them to test."""
    generator = torch.Generator().manual_seed(0)
    slopes = torch.randn(features, outputs, generator=generator, dtype=torch.float64)
    rows = torch.randn(samples + TEST_SAMPLES, features, generator=generator, dtype=torch.float64)
    targets = rows @ slopes
    targets += noise * torch.randn(targets.shape, generator=generator, dtype=torch.float64)
    return split_three(rows, targets, 0, TEST_SAMPLES, outputs)
