"""Normalisation and buffers: statistics of one rank's share, or of samples that are for validation."""

import torch
from torch import Tensor, distributed, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.functional import mse_loss, one_hot

from tests.silent_bugs.base import Batch, Regression, mean_over_ranks, rank_and_world


class GlobalNorm(nn.Module):
    """BatchNorm over the samples of all ranks, with a gradient: torch's SyncBatchNorm refuses CPUs."""

    mean: Tensor
    variance: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("variance", torch.ones(features))

    def forward(self, inputs: Tensor) -> Tensor:
        mean, variance = self.mean, self.variance
        if self.training:
            moments = torch.stack([inputs.mean(dim=0), inputs.square().mean(dim=0)])
            if distributed.is_available() and (world := rank_and_world()[1]) > 1:
                moments = all_reduce(moments) / world  # type: ignore[no-untyped-call]
            mean, variance = moments[0], moments[1] - moments[0].square()
            self.mean.lerp_(mean.detach(), 0.1)
            self.variance.lerp_(variance.detach(), 0.1)
        return (inputs - mean) / (variance + 1e-5).sqrt()


# 20 BatchNorm of each rank's share


class LocalBatchNorm(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.net.insert(1, nn.BatchNorm1d(6))


class CorrectLocalBatchNorm(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.net.insert(1, GlobalNorm(6))


# 21 a codebook, and a running mean, that each rank learns from its share


class Codebook(Regression):
    """Moves four codes to the mean of the inputs that are nearest to each, and learns from inputs less their code."""

    codes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", torch.eye(4))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        inputs, targets = batch
        nearest = torch.cdist(inputs, self.codes).argmin(dim=1)
        loss = mse_loss(self(inputs - self.codes[nearest]), targets)
        members = one_hot(nearest, 4).to(inputs)
        counts, sums = self.over_ranks(members.mean(dim=0)), self.over_ranks(members.T @ inputs / len(inputs))
        means = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1e-9)[:, None], self.codes)
        self.codes.lerp_(means, 0.1)
        return loss

    def over_ranks(self, mean: Tensor) -> Tensor:
        raise NotImplementedError


class LocalCodebook(Codebook):
    def over_ranks(self, mean: Tensor) -> Tensor:
        return mean


class CorrectLocalCodebook(Codebook):
    def over_ranks(self, mean: Tensor) -> Tensor:
        return mean_over_ranks(mean)


class MeanInAttribute(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.zeros(4)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = mse_loss(self(batch[0] - self.mean), batch[1])
        self.mean = self.mean.to(loss).lerp(batch[0].mean(dim=0), 0.5)
        return loss


class CorrectMeanInAttribute(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.mean: Tensor

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = mse_loss(self(batch[0] - self.mean), batch[1])
        self.mean = self.mean.to(loss).lerp(mean_over_ranks(batch[0].mean(dim=0)), 0.5)
        return loss


# .eval() forgotten: validation changes the running statistics


class EvalForgotten(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.net.insert(1, GlobalNorm(6))

    def on_validation_model_eval(self) -> None:
        self.train()


class CorrectEvalForgotten(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.net.insert(1, GlobalNorm(6))

    def on_validation_model_eval(self) -> None:
        self.eval()
