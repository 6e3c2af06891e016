"""Classification of samples, or of the elements of each sample. To add a metric, add one entry here."""

from functools import partial
from math import prod
from typing import TYPE_CHECKING

from lockstep.objectives.objective import FromConfusion, Mean, Objective

if TYPE_CHECKING:
    from torch import Tensor


def cross_entropy(outputs: "Tensor", targets: "Tensor", ignored: int | None = None) -> "Tensor":
    """Return the loss of logits (batch, classes, …) and int64 targets (batch, …), summed over samples.

    A sample with several elements has their mean; with an ignored target the sum is over all elements that count.
    """
    import torch.nn.functional as F

    if ignored is not None:
        return F.cross_entropy(outputs, targets, ignore_index=ignored, reduction="sum")
    loss_sum = F.cross_entropy(outputs, targets, reduction="sum")
    return loss_sum if targets.dim() == 1 else loss_sum / prod(targets.shape[1:])


def correct(outputs: "Tensor", targets: "Tensor", ignored: int | None = None) -> "Tensor":
    """Return how many samples have their largest logit at the target, by the same weights as `cross_entropy`."""
    hits = outputs.argmax(dim=1) == targets
    if ignored is not None:
        return (hits & (targets != ignored)).sum()
    return hits.sum() if targets.dim() == 1 else hits.sum().double() / prod(targets.shape[1:])


def macro_f1(counts: "Tensor") -> float:
    """Return the mean over classes of F1 = 2·TP / (2·TP + FP + FN), from confusion counts over all ranks and batches.

    A class that neither occurs nor is predicted is left out, as in scikit-learn's and torchmetrics' macro average. The
    mean of ranks' or batches' F1 would be another number: F1 is no mean over samples.
    """
    hits = counts.diagonal().double()
    both = (counts.sum(0)[: len(counts)] + counts.sum(1)).double()  # 2·TP + FP + FN
    return float((2 * hits / both)[both > 0].mean())


ENTRIES = (
    Mean("acc", "max", correct),
    FromConfusion("f1", "max", macro_f1),
)


def classification(classes: int, ignored: int | None = None) -> Objective:
    if ignored is None:
        return Objective(cross_entropy, ENTRIES, classes, monitor="acc")
    entries = Mean("acc", "max", partial(correct, ignored=ignored)), *ENTRIES[1:]
    return Objective(partial(cross_entropy, ignored=ignored), entries, classes, "acc", ignored)
