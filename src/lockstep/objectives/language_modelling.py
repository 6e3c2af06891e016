"""Language modelling: at each place of a sequence the next token is predicted. A sample is a sequence."""

import math
from typing import TYPE_CHECKING

from lockstep.objectives.classification import correct_of_counted, cross_entropy_of_counted
from lockstep.objectives.objective import FromLoss, Mean, Objective

if TYPE_CHECKING:
    from torch import Tensor


def token_cross_entropy(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """Of logits (batch, length, vocabulary) and next tokens (batch, length), a sample's being the mean over tokens."""
    import torch.nn.functional as F

    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="sum") / targets.shape[1]


def correct_tokens(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """The share of right tokens of each sample, summed over samples."""
    return (outputs.argmax(dim=2) == targets).sum().double() / targets.shape[1]


def perplexity(loss: float) -> float:
    """e to the mean cross-entropy of a token."""
    return math.exp(loss) if loss < 700 else math.inf


def language_modelling(ignored: int | None) -> Objective:
    if ignored is None:
        return LANGUAGE_MODELLING
    counting = Mean("acc", "max", lambda outputs, targets: correct_of_counted(outputs.mT, targets, ignored))
    entries = counting, *LANGUAGE_MODELLING.entries[1:]
    return Objective(
        lambda outputs, targets: cross_entropy_of_counted(outputs.flatten(0, 1), targets.flatten(), ignored),
        entries,
        ignored=ignored,
    )


LANGUAGE_MODELLING = Objective(
    token_cross_entropy,
    (
        Mean("acc", "max", correct_tokens),
        FromLoss("perplexity", "min", perplexity),
    ),
)
