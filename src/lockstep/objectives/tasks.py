"""The built-in tasks: classification of samples or of the elements of each, language modelling, regression by squared
error, and autoencoding, the regression of the input itself. To add a metric, add one entry to an objective.
"""

import math
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from lockstep.objectives.objective import FromConfusion, FromLoss, Mean, Objective

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


def classification(classes: int, ignored: int | None = None) -> Objective:
    entries = Mean("acc", "max", partial(correct, ignored=ignored)), FromConfusion("f1", "max", macro_f1)
    return Objective(partial(cross_entropy, ignored=ignored), entries, classes, "acc", ignored)


def token_cross_entropy(outputs: "Tensor", targets: "Tensor", ignored: int | None = None) -> "Tensor":
    """Return the loss of logits (batch, length, vocabulary) and next tokens (batch, length), as `cross_entropy`."""
    loss_sum = cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignored)
    return loss_sum / targets.shape[1] if ignored is None else loss_sum


def perplexity(loss: float) -> float:
    """Return e to the mean cross-entropy of a token."""
    return math.exp(loss) if loss < 700 else math.inf


def language_modelling(ignored: int | None = None) -> Objective:
    accuracy = Mean("acc", "max", lambda outputs, targets: correct(outputs.mT, targets, ignored))
    loss_sum = partial(token_cross_entropy, ignored=ignored)
    return Objective(loss_sum, (accuracy, FromLoss("perplexity", "min", perplexity)), ignored=ignored)


def squared_error(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """Return the mean squared error over the outputs of each sample (batch, …), summed over samples."""
    import torch.nn.functional as F

    loss_sum, width = F.mse_loss(outputs, targets, reduction="sum"), prod(outputs.shape[1:])
    return loss_sum if width == 1 else loss_sum / width


def reconstruction_error(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """Return the `squared_error` of outputs with as many numbers as the targets, in any shape."""
    return squared_error(outputs.flatten(1), targets.flatten(1))


REGRESSION = Objective(squared_error)
AUTOENCODING = Objective(reconstruction_error)
