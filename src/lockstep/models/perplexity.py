"""The perplexity of a language model, as a torchmetrics object."""

import torch
from torch import Tensor
from torchmetrics import Metric


class Perplexity(Metric):
    """The exponential of the mean cross-entropy of a token, NaN if a loss is (a MeanMetric leaves it out).

    Its states are replaced, not changed in place as in torchmetrics' Perplexity: those of a Trainer.validate before a
    Trainer.fit are inference tensors.
    """

    loss_sum: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("loss_sum", torch.zeros(()), "sum")
        self.add_state("count", torch.zeros(()), "sum")

    def update(self, loss: Tensor, count: int) -> None:
        self.loss_sum, self.count = self.loss_sum + loss * count, self.count + count

    def compute(self) -> Tensor:
        return (self.loss_sum / self.count).exp()
