"""Nets with parts that the built-in ones do not have."""

import os
from math import prod

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """It asks for `sample_shape` and `num_outputs`, which the data tells."""

    def __init__(self, sample_shape: tuple[int, ...], num_outputs: int, width: int, gain: float = 1.0) -> None:
        super().__init__()
        self.first, self.gain = nn.Linear(prod(sample_shape), width), gain
        self.block = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.last = nn.Linear(width, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x.flatten(1))
        y: Tensor = self.last(hidden + self.gain * self.block(hidden))
        return y


class Around(nn.Module):
    """A net around a net that is handed in."""

    def __init__(self, inner: nn.Module, num_outputs: int) -> None:
        super().__init__()
        self.inner, self.last = inner, nn.Linear(3, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(self.inner(x).tanh())
        return y


class Failing(Residual):
    """At its third batch, by `where`: in the forward of one rank, or in a layer."""

    calls = 0

    def __init__(self, sample_shape: tuple[int, ...], num_outputs: int, width: int, where: str = "") -> None:
        super().__init__(sample_shape, num_outputs, width)
        self.where = where

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 3 and self.where == f"rank {os.environ.get('RANK')}":
            raise RuntimeError(f"of {len(x)} rows")
        return super().forward(torch.cat([x, x], 1) if self.calls == 3 and self.where == "layer" else x)


class Wrong(nn.Module):
    """By `kind` a net that cannot be trained."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        if kind == "raises":
            raise RuntimeError("no weights today")

    def forward(self, x: Tensor) -> Tensor:
        return x
