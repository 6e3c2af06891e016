"""One name of what a module logs: over an epoch, and in a single batch."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lockstep.config_error import ConfigError
from lockstep.sums.running import Scalar, to_floats

REDUCTIONS = {"mean": "mean", "avg": "mean", "sum": "sum", "min": "min", "max": "max"}
EMPTY = {"mean": (0.0, 0.0), "sum": (0.0, 0.0), "min": (math.inf, 0.0), "max": (-math.inf, 0.0)}
"""Of no batch: a total and a weight."""
JOIN: dict[str, Callable[[Iterable[Any]], Any]] = {"sum": sum, "min": min, "max": max}


@dataclass
class Value:
    """One name in one stage. `pending`: values and weights that are not in `total` yet."""

    name: str
    reduction: str
    on_step: bool
    on_epoch: bool
    prog_bar: bool
    logger: bool
    metric: Any = None
    total: float = 0.0
    weight: float = 0.0
    pending: list[tuple[Scalar, float]] = field(default_factory=list)

    @property
    def options(self) -> list[Any]:
        """Return the options by which it differs from other values, as plain values."""
        return [self.name, self.reduction, self.on_step, self.on_epoch, self.prog_bar, self.logger]

    @property
    def step_name(self) -> str:
        return f"{self.name}_step" if self.on_epoch else self.name

    @property
    def epoch_name(self) -> str:
        return f"{self.name}_epoch" if self.on_step else self.name

    def reset(self) -> None:
        self.total, self.weight = EMPTY[self.reduction]
        self.pending = []
        if self.metric is not None:
            self.metric.reset()

    def settle(self) -> None:
        """Add what is pending."""
        values = to_floats([value for value, _ in self.pending])
        for value, (_, weight) in zip(values, self.pending, strict=True):
            if self.reduction == "mean":
                self.total, self.weight = self.total + value * weight, self.weight + weight
            elif weight > 0:
                self.total, self.weight = JOIN[self.reduction]((self.total, value)), 1.0
        self.pending = []


@dataclass
class StepValue:
    """Of one name in one batch: value and weight, by virtual rank. `synced`: over all ranks, for `sync_dist`."""

    entry: Value
    sync_dist: bool = False
    of_ranks: dict[int, tuple[Scalar, float]] = field(default_factory=dict)
    synced: float | None = None

    @property
    def shown(self) -> float:
        """Return the value of this rank, or of all ranks once it is reduced."""
        return float(next(iter(self.of_ranks.values()))[0]) if self.synced is None else self.synced

    @property
    def joined(self) -> tuple[Scalar, float, str]:
        """Return total (for a mean, of value times weight), weight and reduction over the virtual ranks."""
        own, how = [pair for pair in self.of_ranks.values() if pair[1]], self.entry.reduction
        weight = sum(weight for _, weight in own)
        if how == "mean":
            return sum(value * weight for value, weight in own), weight, how
        return (JOIN[how](value for value, _ in own) if own else EMPTY[how][0]), weight, how


def reduced(reduction: str, total: float, weight: float) -> float | None:
    """Return the value of an epoch or of a step; None if nothing was logged."""
    if reduction == "mean":
        return total / weight if weight else None
    if reduction == "sum":
        return total if weight else None
    return None if math.isinf(total) else total


def reduction_of(name: str, given: Any) -> str:
    """Return the reduction that `reduce_fx` names, a word or a function.

    Raises:
        ConfigError: it is none of those known here.
    """
    called = given if isinstance(given, str) else getattr(given, "__name__", str(given))
    if called.lower() not in REDUCTIONS:
        raise ConfigError(
            f"self.log({name!r}, reduce_fx={called}): it is one of mean, sum, min, max; write one of them."
        )
    return REDUCTIONS[called.lower()]


def single_number(name: str, value: Any) -> Tensor:
    """Return a value as a tensor of one number, detached."""
    if isinstance(value, Mapping):
        raise ValueError(f"self.log({name!r}, …) takes one number; log a mapping by self.log_dict")
    own = value.detach() if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
    if own.numel() != 1:
        raise ValueError(f"self.log({name!r}, …) takes one number, and this tensor has the shape {tuple(own.shape)}")
    return own.reshape(())
