"""Points of two classes in the plane: seven given ones, or as many generated ones of the same two classes."""

import torch

from lockstep.base.config_error import require
from lockstep.datamodules.tensors import InMemory, Split

POINTS = torch.tensor(
    [[-1.2, 3.1], [-0.9, 2.9], [-0.5, 2.6], [2.3, -1.1], [2.7, -1.5], [-0.8, 2.8], [2.6, -1.6]], dtype=torch.float64
)
CLASSES = torch.tensor([0, 0, 0, 1, 1, 0, 1])
"""Of the seven points: the first five are to train on, two to test (docs/sources.md, DDP on seven points)."""

TEST_SAMPLES = 1000
SPREAD = 0.5  # standard deviation of the generated points around their class's centre, in both directions


class Points(InMemory):
    """float64 points (n, 2) and classes: five to train on and two to test, or `samples` to train on and 1,000 to test.

    Generated points alternate between the classes, whose centres are the means of those five points.
    """

    sample_shape, num_outputs, num_classes = (2,), 2, 2
    class_names = ("0", "1")

    def __init__(self, batch_size: int = 64, samples: int | None = None) -> None:
        super().__init__(batch_size)
        fits, hint = samples is None or samples >= 2, "data.samples=1000"
        require(fits, "data.samples", samples, "it must be 2 or more", hint)
        self.save_hyperparameters(logger=False)
        self.samples = samples

    def load(self) -> dict[str, Split]:
        splits: dict[str, Split] = {"train": (POINTS[:5], CLASSES[:5]), "test": (POINTS[5:], CLASSES[5:])}
        if self.samples is None:
            return splits
        inputs, targets = splits["train"]
        centres = torch.stack([inputs[targets == label].mean(dim=0) for label in (0, 1)])
        generator = torch.Generator().manual_seed(0)
        for name, samples in (("train", self.samples), ("test", TEST_SAMPLES)):
            labels = torch.arange(samples) % 2
            noise = torch.randn(samples, 2, generator=generator, dtype=torch.float64)
            splits[name] = centres[labels] + SPREAD * noise, labels
        return splits
