"""Nets with parts that the built-in ones do not have."""

import os
from math import prod

import numpy as np
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


class Odd(nn.Module):
    """Frozen, tied and unused parameters, a buffer that counts, dropout."""

    def __init__(self, dropout: float = 0.0, unused: bool = True) -> None:
        super().__init__()
        self.first, self.frozen = nn.Linear(4, 6), nn.Linear(6, 6).requires_grad_(False)
        self.one, self.two = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.two.weight = self.one.weight
        self.last, self.unused = nn.Linear(6, 3), nn.Linear(2, 2) if unused else None
        self.dropout = nn.Dropout(dropout)
        self.calls: Tensor
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        y: Tensor = self.last(self.dropout(self.two(self.one(self.frozen(self.first(x)).relu()))))
        return y


class Around(nn.Module):
    """A net around a net that is handed in."""

    def __init__(self, inner: nn.Module, num_outputs: int) -> None:
        super().__init__()
        self.inner, self.last = inner, nn.Linear(3, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(self.inner(x).tanh())
        return y


class Noise(nn.Module):
    """Random numbers that no module tells of, and first weights from numpy."""

    def __init__(self, hidden: list[int], num_outputs: int = 3) -> None:
        super().__init__()
        self.last = nn.Linear(4, num_outputs)
        self.scale = nn.Parameter(torch.tensor(np.random.rand(len(hidden)), dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(x + torch.randn_like(x)) * self.scale.sum()
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
        self.kind = kind
        self.last = nn.Identity() if kind == "empty" else nn.Linear(4, {"narrow": 2, "wide": 6}.get(kind, 3))

    def forward(self, x: Tensor) -> object:
        y: Tensor = self.last(x)
        return {"tuple": (y, y), "flat": y.sum(1)}.get(self.kind, y)
