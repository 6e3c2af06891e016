"""Points of two classes in the plane: the seven of S0, or as many generated ones of the same two classes."""

import torch

from lockstep.data.samples import Splits
from lockstep.data.tensors import Split

TRAIN = [[-1.2, 3.1], [-0.9, 2.9], [-0.5, 2.6], [2.3, -1.1], [2.7, -1.5]], [0, 0, 0, 1, 1]
TEST = [[-0.8, 2.8], [2.6, -1.6]], [0, 1]
TEST_SAMPLES = 1000
SPREAD = 0.5  # standard deviation of the generated points around their class's centre, in both directions


def load(samples: int | None) -> Splits:
    """Return float64 points (n, 2) and classes: S0's five and two, or `samples` to train on and 1,000 to test.

    Generated points alternate between the classes, whose centres are the means of S0's five points.
    """
    train, test = (
        Split(torch.tensor(rows, dtype=torch.float64), torch.tensor(labels)) for rows, labels in (TRAIN, TEST)
    )
    if samples is not None:
        generator = torch.Generator().manual_seed(0)
        centres = torch.stack([train.inputs[train.targets == label].mean(dim=0) for label in (0, 1)])
        train = _around(centres, samples, generator)
        test = _around(centres, TEST_SAMPLES, generator)
    return Splits(train, Split(train.inputs[:0], train.targets[:0]), test, outputs=2)


def _around(centres: torch.Tensor, samples: int, generator: torch.Generator) -> Split:
    labels = torch.arange(samples) % len(centres)
    noise = torch.randn(samples, 2, generator=generator, dtype=torch.float64)
    return Split(centres[labels] + SPREAD * noise, labels)
