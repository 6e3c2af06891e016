"""Inputs as a data set has them, converted as its batches were for training."""

from typing import Any

import torch
from torch import Tensor, nn

from lockstep import data
from lockstep.data import digits
from lockstep.data.tensors import Batch, Split, as_float
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.schemas import MNIST, DataFacts, Digits, Loaders


class Preprocessing(nn.Module):
    """Converts inputs (batch, *shape), a tensor or an array: bytes of images are divided by 255 and normalised.

    scales: whether the data set consists of bytes with a mean and a deviation; then real numbers are taken for
        pixels from 0 to 1, and normalised, too.
    divides: False if a LightningModule gets the bytes of its Dataset or its loaders as they are.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.dtype, self.scales = dtype_of(plan), isinstance(plan.data, MNIST | Digits)
        self.mean, self.std, self.divides = 0.0, 1.0, True
        if isinstance(plan.data, MNIST):
            self.mean, self.std = plan.data.mean, plan.data.std
        elif isinstance(plan.data, Digits):
            self.mean, self.std = digits.MEAN, digits.STD

        if plan.model.lightning and isinstance(plan.data, DataFacts):
            is_pairs = plan.data.dtype == "uint8" and not isinstance(plan.data, Loaders)
            self.divides = is_pairs and isinstance(data.load(plan.data, plan.seed, "module").train, Split)

    def forward(self, inputs: Any) -> Tensor:
        tensor: Tensor = torch.as_tensor(inputs)
        if self.scales and tensor.is_floating_point():
            return (tensor.to(self.dtype) - self.mean) / self.std
        if not self.divides and not tensor.is_floating_point():
            return tensor
        return as_float(Batch(tensor, tensor), self.dtype, self.mean, self.std).inputs
