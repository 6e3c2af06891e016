"""An objective: the loss that trains a net, and the metrics that are measured with it.

Engines, records, checkpoints, loggers, tables and `checkpoint.monitor` take the names from here. Torch is not imported
before something is computed: a plan, `compare` and a sweep need names alone.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

Better = Literal["min", "max"]
LOSS, SAMPLES = 0, 1  # the positions of the loss sum and of the sample count among an objective's sums


@dataclass(frozen=True)
class Metric:
    """A metric, by what it is computed from: see the derived classes."""

    name: str
    better: Better
    compute: Callable[..., Any]


class Mean(Metric):
    """A mean over samples: `compute` of outputs and targets, shape (), is added up and divided once.

    Over ranks and batches of unequal size only sums can be added: a mean of means is wrong.
    """


class FromLoss(Metric):
    """A function of the mean loss over all samples."""


class FromConfusion(Metric):
    """A metric of a split, from its confusion counts (classes, classes); for validation and test alone."""


@dataclass(frozen=True)
class Objective:
    """`loss_sum` is the loss summed over a batch, for backward; `monitor` names the metric of the best epoch.

    ignored: a target that does not count; means are then over those that do, and `loss_sum` is a sum over them.
    """

    loss_sum: "Callable[[Any, Tensor], Tensor]"
    entries: tuple[Metric, ...] = ()
    classes: int = 0
    monitor: str = "loss"
    ignored: int | None = None

    @cached_property
    def means(self) -> tuple[Mean, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, Mean))

    @cached_property
    def sums(self) -> tuple[str, ...]:
        """The names of the sums of a batch, in their order."""
        counted = () if self.ignored is None else ("counted",)
        return "loss", "samples", *(mean.name for mean in self.means), *counted

    def divisor(self, sums: Sequence[float]) -> float:
        """Return the number that means are over: samples, or the targets that count."""
        return sums[SAMPLES if self.ignored is None else self.sums.index("counted")]

    def _measured(self, stage: str) -> tuple[Metric, ...]:
        """Return the metrics of a stage; training counts no confusion."""
        return tuple(entry for entry in self.entries if stage != "train" or not isinstance(entry, FromConfusion))

    def names(self, stage: str) -> list[str]:
        """Return the names of the metrics of a stage (train, val or test)."""
        return [f"{stage}/{name}" for name in ("loss", *(entry.name for entry in self._measured(stage)))]

    def better(self, name: str) -> Better:
        """Return whether smaller or larger values of the metric `{stage}/{name}` are better."""
        return next((entry.better for entry in self.entries if name.endswith(f"/{entry.name}")), "min")

    def metrics(self, stage: str, totals: "Tensor") -> dict[str, float]:
        """Return the metrics that `names` lists, from sums over all ranks and, of an evaluation, confusion counts."""
        sums = dict(zip(self.sums, totals.tolist(), strict=False))
        divisor = self.divisor([*sums.values()]) or math.nan
        values = {f"{stage}/loss": (loss := sums["loss"] / divisor)}
        for entry in self._measured(stage):
            if isinstance(entry, Mean):
                value = sums[entry.name] / divisor
            else:
                value = entry.compute(loss if isinstance(entry, FromLoss) else self.confusion_of(totals))
            values[f"{stage}/{entry.name}"] = value
        return values

    def confusion_of(self, totals: "Tensor") -> "Tensor":
        """Return the confusion counts among the totals of an evaluation: int64, (classes, classes).

        One column more counts predictions that are no class of the data, if there are any.
        """
        counts = totals[len(self.sums) :].long().view(self.classes, self.classes + 1)
        return counts if counts[:, -1].any() else counts[:, :-1]
