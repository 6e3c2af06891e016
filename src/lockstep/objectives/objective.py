"""An objective: the loss that a net is trained by, and the metrics measured beside it.

All else takes the names from here: both engines, the record, checkpoints, loggers, tables, `checkpoint.monitor`.
Torch is not imported before something is computed: a plan, `compare` and a sweep ask for names alone.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

Better = Literal["min", "max"]
LOSS, SAMPLES = 0, 1
"""The places of the loss sum and of the sample count among an objective's sums."""


@dataclass(frozen=True)
class Mean:
    """A mean over samples: what `batch_sum` says of outputs and targets, shape (), added up and divided once.

    Sums, never means: over ranks and batches of unequal size only sums can be added (a mean of means is wrong).
    """

    name: str
    better: Better
    batch_sum: "Callable[[Any, Tensor], Tensor]"


@dataclass(frozen=True)
class FromLoss:
    """A function of the mean loss over all samples."""

    name: str
    better: Better
    of_loss: Callable[[float], float]


@dataclass(frozen=True)
class FromConfusion:
    """A metric of all of a split, from its confusion counts (classes, classes): validation and test have it alone."""

    name: str
    better: Better
    of_counts: "Callable[[Tensor], float]"


@dataclass(frozen=True)
class Objective:
    """`loss_sum` is the loss summed over a batch, to go backward from; `monitor` what the best epoch is best by.

    ignored: a target that does not count; means are then over those that do, and `loss_sum` is a sum over them.
    """

    loss_sum: "Callable[[Any, Tensor], Tensor]"
    entries: tuple[Mean | FromLoss | FromConfusion, ...] = ()
    classes: int = 0
    monitor: str = "loss"
    ignored: int | None = None

    @cached_property
    def means(self) -> tuple[Mean, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, Mean))

    @cached_property
    def sums(self) -> tuple[str, ...]:
        """The names of what a batch adds, in their order."""
        counted = () if self.ignored is None else ("counted",)
        return "loss", "samples", *(mean.name for mean in self.means), *counted

    def counted(self, targets: "Tensor") -> "Tensor":
        """How many targets of a batch count."""
        assert self.ignored is not None
        return targets.ne(self.ignored).sum()

    def divisor(self, sums: Sequence[float]) -> float:
        """What means are over: samples, or the targets that count."""
        return sums[SAMPLES if self.ignored is None else self.sums.index("counted")]

    def _measured(self, stage: str) -> tuple[Mean | FromLoss | FromConfusion, ...]:
        """Training counts no confusion."""
        return tuple(entry for entry in self.entries if stage != "train" or not isinstance(entry, FromConfusion))

    def names(self, stage: str) -> list[str]:
        """What is measured in a stage (train, val or test), as results, curves and the command line call it."""
        return [f"{stage}/{name}" for name in ("loss", *(entry.name for entry in self._measured(stage)))]

    def better(self, name: str) -> Better:
        """Whether the smaller or the larger value of `{stage}/{name}` is the better one."""
        return next((entry.better for entry in self.entries if name.endswith(f"/{entry.name}")), "min")

    def metrics(self, stage: str, totals: "Tensor") -> dict[str, float]:
        """All that `names` lists, from sums over all ranks and batches, each sample once.

        Args:
            totals: (sums,) of training; behind them the confusion counts of an evaluation.
        """
        sums = dict(zip(self.sums, totals.tolist(), strict=False))
        over = self.divisor([*sums.values()]) or math.nan
        own = {"loss": sums["loss"] / over}
        for entry in self._measured(stage):
            if isinstance(entry, Mean):
                own[entry.name] = sums[entry.name] / over
            elif isinstance(entry, FromLoss):
                own[entry.name] = entry.of_loss(own["loss"])
            else:
                own[entry.name] = entry.of_counts(self.confusion_of(totals))
        return {f"{stage}/{name}": value for name, value in own.items()}

    def confusion_of(self, totals: "Tensor") -> "Tensor":
        """The confusion counts among the totals of an evaluation: int64, (classes, classes)."""
        return totals[len(self.sums) :].long().view(self.classes, self.classes)
