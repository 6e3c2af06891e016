"""Losses and metrics of a user's own, and nets and data that ask for them."""

from typing import Any

import torch
from torch import Tensor, nn


class Absolute:
    """A number for each sample, one metric of each form."""

    better = {"largest": "min"}  # noqa: RUF012  # as a user writes it
    monitor = "close"

    def __init__(self, within: float) -> None:
        self.within = within
        self.metrics = {"close": self.close, "largest": lambda outputs, targets: (outputs - targets).abs().amax(1)}

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).abs().mean(1)

    def close(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return ((outputs - targets).abs() < self.within).to(outputs.dtype).mean()


class Variational(nn.Module):
    """Of samples that are an input alone; the net makes a mapping and a tuple."""

    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.tensor([0.5, 1.0, 1.0, 2.0]))

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        given, (mean, log_variance) = outputs["given"], outputs["code"]
        distance = (1 + log_variance - mean.square() - log_variance.exp()).sum(1) / -2
        loss: Tensor = (self.weight * (given - targets).square()).sum(1).mean() + 0.1 * distance.mean()
        return loss


class Coder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.code, self.back = nn.Linear(4, 4), nn.Linear(2, 4)

    def forward(self, x: Tensor) -> dict[str, Any]:
        mean, log_variance = self.code(x).chunk(2, dim=1)
        return {"given": self.back(mean + 0.5 * log_variance), "code": (mean, log_variance)}


class Tokens(nn.Module):
    """(batch, length) → (batch, length, outputs)."""

    def __init__(self, num_outputs: int) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(num_outputs, 6), nn.Linear(6, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(self.embedding(x).cumsum(dim=1).tanh())
        return y


class Pixels(nn.Module):
    """(batch, 1, 5, 6) → (batch, outputs, 5, 6)."""

    def __init__(self, num_outputs: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, num_outputs, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.convolution(x)
        return y


def points(samples: int) -> Tensor:
    return torch.randn(samples, 4, generator=torch.Generator().manual_seed(2))


def sequences(samples: int) -> Tensor:
    """Of 7 tokens among 5."""
    steps = torch.randint(3, (samples, 7), generator=torch.Generator().manual_seed(3))
    return (steps.cumsum(dim=1) % 5).to(torch.int32)


def masks(samples: int) -> tuple[Tensor, Tensor]:
    """Images, and a class for each pixel."""
    images = torch.randn(samples, 1, 5, 6, generator=torch.Generator().manual_seed(4))
    return images, (images[:, 0] > 0).long() + (images[:, 0] > 1).long()


def holes(samples: int) -> tuple[Tensor, Tensor]:
    """The same; of some pixels nobody knows the class, of some images of none."""
    images, classes = masks(samples)
    drawn = torch.rand(classes.shape, generator=torch.Generator().manual_seed(5))
    unknown = drawn < torch.linspace(0, 1, samples)[:, None, None]
    return images, classes.masked_fill(unknown, -100)


class NoLoss:
    pass


def odd_shape(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).abs()


class WrongMetric(Absolute):
    monitor = "far"


class Counting:
    """The loss grows with each call."""

    def __init__(self) -> None:
        self.calls = 0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        return self.calls * (outputs - targets).square().mean()
