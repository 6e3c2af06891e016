"""What a net is trained for: its loss, and the metrics of it. To add a metric is to add one entry here.

All else takes the names from here: both engines, the record, checkpoints, loggers, tables, `checkpoint.monitor`.
Torch is not imported before something is computed: a plan, `compare` and a sweep ask for names alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from math import prod
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Better = Literal["min", "max"]
LOSS, SAMPLES = 0, 1
"""The places of the loss sum and of the sample count among a task's sums."""


@dataclass(frozen=True)
class Mean:
    """A mean over samples: what `batch_sum` says of outputs and targets, shape (), added up and divided once.

    Sums, never means: over ranks and batches of unequal size only sums can be added (a mean of means is wrong).
    """

    name: str
    better: Better
    batch_sum: "Callable[[Tensor, Tensor], Tensor]"


@dataclass(frozen=True)
class FromConfusion:
    """A metric of all of a split, from its confusion counts (classes, classes): validation and test have it alone."""

    name: str
    better: Better
    of_counts: "Callable[[Tensor], float]"


@dataclass(frozen=True)
class Task:
    """`loss_sum` is the loss summed over a batch, to go backward from; `monitor` what the best epoch is best by."""

    loss_sum: "Callable[[Tensor, Tensor], Tensor]"
    entries: tuple[Mean | FromConfusion, ...] = ()
    classes: int = 0
    monitor: str = "loss"

    @cached_property
    def means(self) -> tuple[Mean, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, Mean))

    @cached_property
    def sums(self) -> tuple[str, ...]:
        """The names of what a batch adds, in their order."""
        return "loss", "samples", *(mean.name for mean in self.means)

    def names(self, stage: str) -> list[str]:
        """What is measured in a stage (train, val or test), as results, curves and the command line call it."""
        entries = self.means if stage == "train" else self.entries
        return [f"{stage}/{name}" for name in ("loss", *(entry.name for entry in entries))]

    def better(self, name: str) -> Better:
        """Whether the smaller or the larger value of `{stage}/{name}` is the better one."""
        return next((entry.better for entry in self.entries if name.endswith(f"/{entry.name}")), "min")

    def metrics(self, stage: str, totals: "Tensor") -> dict[str, float]:
        """All that `names` lists, from sums over all ranks and batches, each sample once.

        Args:
            totals: (sums,) of training; behind them the confusion counts of an evaluation.
        """
        sums = dict(zip(self.sums, totals.tolist(), strict=False))
        own = {"loss": sums["loss"] / sums["samples"]}
        for entry in self.means if stage == "train" else self.entries:
            if isinstance(entry, Mean):
                own[entry.name] = sums[entry.name] / sums["samples"]
            else:
                own[entry.name] = entry.of_counts(self.confusion_of(totals))
        return {f"{stage}/{name}": value for name, value in own.items()}

    def confusion_of(self, totals: "Tensor") -> "Tensor":
        """The confusion counts among the totals of an evaluation: int64, (classes, classes)."""
        return totals[len(self.sums) :].long().view(self.classes, self.classes)


def cross_entropy(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """Of logits (batch, classes) and int64 targets (batch,)."""
    import torch.nn.functional as F

    return F.cross_entropy(outputs, targets, reduction="sum")


def squared_error(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """Of outputs and targets (batch, …) of one shape, a sample's being the mean over its outputs."""
    import torch.nn.functional as F

    loss_sum, width = F.mse_loss(outputs, targets, reduction="sum"), prod(outputs.shape[1:])
    return loss_sum if width == 1 else loss_sum / width


def correct(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """How many samples have their largest logit at the target."""
    return (outputs.argmax(dim=1) == targets).sum()


def macro_f1(counts: "Tensor") -> float:
    """The mean over classes of F1 = 2·TP / (2·TP + FP + FN), from confusion counts over all ranks and batches.

    A class that neither occurs nor is predicted is left out, as scikit-learn's and torchmetrics' macro average does. A
    mean of ranks' or batches' F1 would be another number: F1 is no mean over samples.
    """
    hits = counts.diagonal().double()
    both = (counts.sum(0) + counts.sum(1)).double()  # 2·TP + FP + FN
    return float((2 * hits / both)[both > 0].mean())


CLASSIFICATION = (
    Mean("acc", "max", correct),
    FromConfusion("f1", "max", macro_f1),
)
REGRESSION: tuple[Mean, ...] = ()


@cache
def task_of(classes: int) -> Task:
    """Classification where there are classes, regression where there are none."""
    if classes:
        return Task(cross_entropy, CLASSIFICATION, classes, monitor="acc")
    return Task(squared_error, REGRESSION)
