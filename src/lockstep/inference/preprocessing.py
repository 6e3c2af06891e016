"""Inputs as a data set has them, converted as its batches were for training."""

from typing import Any

import torch
from torch import Tensor, nn

from lockstep import data
from lockstep.data import digits
from lockstep.data.tensors import Batch, Split, as_float
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.schemas import MNIST, Digits, Loaders
from lockstep.schemas.target import BuiltIn


class Preprocessing(nn.Module):
    """Converts inputs (batch, *shape), a tensor or an array: bytes of images are divided by 255 and normalised.

    Real numbers are taken for pixels from 0 to 1 if the data set consists of bytes, and normalised in the same way.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.dtype, self.divides = dtype_of(plan), _divides_bytes(plan)
        self.mean, self.std = 0.0, 1.0
        if isinstance(plan.data, MNIST):
            self.mean, self.std = plan.data.mean, plan.data.std
        elif isinstance(plan.data, Digits):
            self.mean, self.std = digits.MEAN, digits.STD

    def forward(self, inputs: Any) -> Tensor:
        tensor: Tensor = torch.as_tensor(inputs)
        if tensor.is_floating_point():
            return (tensor.to(self.dtype) - self.mean) / self.std
        return as_float(Batch(tensor, tensor), self.dtype, self.mean, self.std).inputs if self.divides else tensor


def _divides_bytes(plan: Plan) -> bool:
    """Whether bytes are divided by 255: not those that a LightningModule gets from a Dataset or from loaders."""
    if not plan.model.lightning or isinstance(plan.data, BuiltIn):
        return True
    if isinstance(plan.data, Loaders) or (plan.data.shape and plan.data.dtype != "uint8"):
        return False
    return plan.data.is_built_in or isinstance(data.load(plan.data, plan.seed, "module").train, Split)
