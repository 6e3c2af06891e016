"""Numbers of batches, kept until they are read: a tensor of a GPU waits for nothing."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

Scalar = Tensor | float
"""A number of one step that is read later; a tensor stays on its GPU, so that nothing waits for it."""

BatchStats = tuple[
    Scalar, ...
]  # of one batch: its loss times its weight, its samples, and what its loss is a mean over
LOSS, SAMPLES, WEIGHT, SUMS = 0, 1, 2, 3  # their places, and their number


def to_scalar(number: Tensor) -> Scalar:
    """Return the value of a tensor, but on a GPU the tensor.

    Thousands of small tensors, some from each step, would fragment the CPU memory that a net allocates and frees.
    """
    return number.detach() if number.is_cuda else number.item()


def to_floats(numbers: Sequence[Scalar]) -> Sequence[float]:
    """Return the values of stored numbers; waits for each GPU once."""
    if not any(isinstance(number, Tensor) for number in numbers):
        return cast(Sequence[float], numbers)
    tensors = [torch.as_tensor(number) for number in numbers]
    if len({tensor.device for tensor in tensors}) > 1:
        tensors = [tensor.cpu() for tensor in tensors]
    floats: list[float] = torch.stack(tensors).double().tolist()
    return floats


def stack_stats(batches: Sequence[BatchStats]) -> Tensor:
    """Return the sums of each batch, float64, shape (batches, sums)."""
    columns = [to_floats(column) for column in zip(*batches, strict=True)] or [()] * SUMS
    return torch.tensor(columns, dtype=torch.float64).T
