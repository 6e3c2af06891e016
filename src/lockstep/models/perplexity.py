"""The perplexity of a language model, as a torchmetrics object."""

import torch
from torch import Tensor
from torchmetrics import Metric


class Perplexity(Metric):
    """The exponential of the mean cross-entropy of a token. A MeanMetric would leave out losses that are NaN."""

    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.tensor(0.0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0.0), dist_reduce_fx="sum")

    def update(self, loss: Tensor, weight: int) -> None:
        self.total += loss * weight
        self.count += weight

    def compute(self) -> Tensor:
        return (self.total / self.count).exp()
