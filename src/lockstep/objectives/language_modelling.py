"""Language modelling: predict the next token at each position of a sequence. A sample is a sequence."""

import math
from functools import partial
from typing import TYPE_CHECKING

from lockstep.objectives.classification import correct, cross_entropy
from lockstep.objectives.objective import FromLoss, Mean, Objective

if TYPE_CHECKING:
    from torch import Tensor


def token_cross_entropy(outputs: "Tensor", targets: "Tensor", ignored: int | None = None) -> "Tensor":
    """Return the loss of logits (batch, length, vocabulary) and next tokens (batch, length), as `cross_entropy`."""
    loss_sum = cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignored)
    return loss_sum / targets.shape[1] if ignored is None else loss_sum


def correct_tokens(outputs: "Tensor", targets: "Tensor", ignored: int | None = None) -> "Tensor":
    """Return the fraction of correct tokens of each sample, summed over samples; the number of tokens if some count."""
    return correct(outputs.mT, targets, ignored)


def perplexity(loss: float) -> float:
    """Return e to the mean cross-entropy of a token."""
    return math.exp(loss) if loss < 700 else math.inf


def language_modelling(ignored: int | None = None) -> Objective:
    accuracy = Mean("acc", "max", partial(correct_tokens, ignored=ignored))
    loss_sum = partial(token_cross_entropy, ignored=ignored)
    return Objective(loss_sum, (accuracy, FromLoss("perplexity", "min", perplexity)), ignored=ignored)
