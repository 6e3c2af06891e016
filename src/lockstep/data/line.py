"""y = slope·x + intercept + noise·ε, x and ε standard normal (S2): the regression whose answer is known."""

from collections.abc import Sequence

import torch
from torch import nn

from lockstep.data.samples import Splits, split_three

TEST_SAMPLES = 1000


def load(
    slope: float,
    intercept: float,
    noise: float,
    samples: int,
    val_size: int,
    inputs: Sequence[float] = (),
    predict: Sequence[float] = (),
) -> Splits:
    """Return float64 columns x and y: `samples` to train on (or `inputs`), then `val_size`, then 1,000 to test.

    They are always the same. `predict` is for the end of a run.
    """
    samples = len(inputs) or samples
    generator = torch.Generator().manual_seed(0)
    total = samples + val_size + TEST_SAMPLES
    x, epsilon = torch.randn(2, total, 1, generator=generator, dtype=torch.float64)
    x[: len(inputs), 0] = torch.tensor(inputs, dtype=torch.float64)
    return split_three(x, slope * x + intercept + noise * epsilon, val_size, TEST_SAMPLES, outputs=1)


@torch.no_grad()
def fitted_line(net: nn.Module, predict: Sequence[float]) -> dict[str, float]:
    """Return the line that a net computes, f(1) - f(0) and f(0), and f(x) for each x to predict."""
    weight = next(net.parameters())
    x = torch.tensor([0.0, 1.0, *predict], dtype=weight.dtype, device=weight.device)
    at_zero, at_one, *rest = net.eval()(x[:, None]).flatten().tolist()
    line = {"slope": at_one - at_zero, "intercept": at_zero}
    return line | {f"predict/{x:g}": value for x, value in zip(predict, rest, strict=True)}
