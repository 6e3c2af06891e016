"""Classification: a class for each sample, or for each part of it. To add a metric is to add one entry here."""

from functools import partial
from math import prod
from typing import TYPE_CHECKING

from lockstep.objectives.objective import FromConfusion, Mean, Objective

if TYPE_CHECKING:
    from torch import Tensor


def cross_entropy(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """Of logits (batch, classes, …) and int64 targets (batch, …), a sample's being the mean over its parts."""
    import torch.nn.functional as F

    loss_sum = F.cross_entropy(outputs, targets, reduction="sum")
    return loss_sum if targets.dim() == 1 else loss_sum / prod(targets.shape[1:])


def correct(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """How many samples have their largest logit at the target; of a sample in parts the share that has."""
    right = (outputs.argmax(dim=1) == targets).sum()
    return right if targets.dim() == 1 else right.double() / prod(targets.shape[1:])


def cross_entropy_of_counted(outputs: "Tensor", targets: "Tensor", ignored: int) -> "Tensor":
    """The sum over all parts of all samples whose target counts."""
    import torch.nn.functional as F

    return F.cross_entropy(outputs, targets, ignore_index=ignored, reduction="sum")


def correct_of_counted(outputs: "Tensor", targets: "Tensor", ignored: int) -> "Tensor":
    """How many of them have their largest logit at the target."""
    return ((outputs.argmax(dim=1) == targets) & (targets != ignored)).sum()


def macro_f1(counts: "Tensor") -> float:
    """The mean over classes of F1 = 2·TP / (2·TP + FP + FN), from confusion counts over all ranks and batches.

    A class that neither occurs nor is predicted is left out, as scikit-learn's and torchmetrics' macro average does. A
    mean of ranks' or batches' F1 would be another number: F1 is no mean over samples.
    """
    hits = counts.diagonal().double()
    both = (counts.sum(0) + counts.sum(1)).double()  # 2·TP + FP + FN
    return float((2 * hits / both)[both > 0].mean())


ENTRIES = (
    Mean("acc", "max", correct),
    FromConfusion("f1", "max", macro_f1),
)


def classification(classes: int, ignored: int | None = None) -> Objective:
    if ignored is None:
        return Objective(cross_entropy, ENTRIES, classes, monitor="acc")
    counting = Mean("acc", "max", partial(correct_of_counted, ignored=ignored)), *ENTRIES[1:]
    return Objective(partial(cross_entropy_of_counted, ignored=ignored), counting, classes, "acc", ignored)
