"""The values that a module logs under one name: over an epoch, and in a single batch."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lockstep.config_error import ConfigError
from lockstep.sums.running import Scalar, to_floats

REDUCTIONS = {"mean": "mean", "avg": "mean", "sum": "sum", "min": "min", "max": "max"}
EMPTY = {"mean": 0.0, "sum": 0.0, "min": math.inf, "max": -math.inf}
"""The total of no values."""
JOIN: dict[str, Callable[[Iterable[Any]], Any]] = {"mean": sum, "sum": sum, "min": min, "max": max}
"""How totals are reduced; the total of a mean is the sum of value times weight."""


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
        """Return the arguments that create an equal, empty value, as plain values."""
        return [self.name, self.reduction, self.on_step, self.on_epoch, self.prog_bar, self.logger]

    @property
    def step_name(self) -> str:
        return f"{self.name}_step" if self.on_epoch else self.name

    @property
    def epoch_name(self) -> str:
        return f"{self.name}_epoch" if self.on_step else self.name

    def reset(self) -> None:
        self.total, self.weight, self.pending = EMPTY[self.reduction], 0.0, []
        if self.metric is not None:
            self.metric.reset()

    def flush(self) -> None:
        """Add the pending values to the total."""
        for value, (_, weight) in zip(to_floats([value for value, _ in self.pending]), self.pending, strict=True):
            self.add(value * weight if self.reduction == "mean" else value, weight)
        self.pending = []

    def add(self, total: float, weight: float) -> None:
        """Add a total of some weight; one without weight does not count."""
        if weight > 0:
            self.total, self.weight = JOIN[self.reduction]((self.total, total)), self.weight + weight


@dataclass
class StepValue:
    """The values of one name in one batch, each with its weight, by virtual rank.

    synced: their reduction over all ranks, for `sync_dist`.
    """

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
        """Return total, weight and reduction over the virtual ranks."""
        pairs, reduction = [pair for pair in self.of_ranks.values() if pair[1]], self.entry.reduction
        totals = [value * weight if reduction == "mean" else value for value, weight in pairs]
        weight = sum(weight for _, weight in pairs)
        return JOIN[reduction](totals) if totals else EMPTY[reduction], weight, reduction


def reduced(reduction: str, total: float, weight: float) -> float | None:
    """Return the value of an epoch or of a step; None if nothing was logged."""
    if reduction == "mean":
        return total / weight if weight else None
    return None if math.isinf(total) or (reduction == "sum" and not weight) else total


def reduction_of(name: str, reduce_fx: Any) -> str:
    """Return the reduction that `reduce_fx` names, a word or a function.

    Raises:
        ConfigError: it is unknown.
    """
    word = reduce_fx if isinstance(reduce_fx, str) else getattr(reduce_fx, "__name__", str(reduce_fx))
    if word.lower() not in REDUCTIONS:
        raise ConfigError(f"self.log({name!r}, reduce_fx={word}): it is not one of mean, sum, min, max.")
    return REDUCTIONS[word.lower()]


def single_number(name: str, value: Any) -> Tensor:
    """Return a value as a detached tensor of one number, shape ().

    Raises:
        ValueError: it is a mapping, or several numbers.
    """
    if isinstance(value, Mapping):
        raise ValueError(f"self.log({name!r}, …) takes one number; log a mapping by self.log_dict")
    number = value.detach() if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
    if number.numel() != 1:
        raise ValueError(f"self.log({name!r}, …) takes one number, and this tensor has the shape {tuple(number.shape)}")
    return number.reshape(())
