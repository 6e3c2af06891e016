"""Regression of real numbers by squared error; autoencoding is the regression of the input itself."""

from math import prod
from typing import TYPE_CHECKING

from lockstep.objectives.objective import Objective

if TYPE_CHECKING:
    from torch import Tensor


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
