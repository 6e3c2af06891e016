"""Regression of real numbers by squared error; of the input itself, autoencoding."""

from math import prod
from typing import TYPE_CHECKING

from lockstep.objectives.objective import Objective

if TYPE_CHECKING:
    from torch import Tensor


def squared_error(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """Of outputs and targets (batch, …) of one shape, a sample's being the mean over its outputs."""
    import torch.nn.functional as F

    loss_sum, width = F.mse_loss(outputs, targets, reduction="sum"), prod(outputs.shape[1:])
    return loss_sum if width == 1 else loss_sum / width


def reconstruction_error(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """`squared_error` of outputs with as many numbers as the targets, however they are laid out: a row of them, say."""
    return squared_error(outputs.flatten(1), targets.flatten(1))


REGRESSION = Objective(squared_error)
AUTOENCODING = Objective(reconstruction_error)
