"""Collectives and control flow: a reduction that is missing, comes twice, or comes on one rank alone."""

import copy
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.functional import cross_entropy, mse_loss, normalize
from torch.nn.parallel import DistributedDataParallel

from tests.silent_bugs.base import Batch, Regression, mean_over_ranks

# 12 the loss all-reduced outside autograd, and divided by the ranks


class ReducedLoss(Regression):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        if (world := self.trainer.world_size) > 1:
            distributed.all_reduce(loss.data)
            loss = loss / world
        return loss


class CorrectReducedLoss(Regression):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        self.log("train_loss", mean_over_ranks(loss))
        return loss


# 13 a contrastive loss whose negatives come from other ranks without a gradient, or do not come


class Contrastive(Regression):
    """Two views of each sample, its first and its last two inputs, find each other among those of all ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 4))

    def views(self, batch: Batch) -> tuple[Tensor, Tensor]:
        left, right = (normalize(self(view)) for view in batch[0].chunk(2, dim=1))
        return left, right

    def match(self, left: Tensor, everything: Tensor, first: int) -> Tensor:
        return cross_entropy(left @ everything.T, torch.arange(len(left)) + first)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        left, right = self.views(batch)
        self.log("val_loss", (left * right).sum(dim=1).mean(), sync_dist=True)


class GatherWithoutGradient(Contrastive):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        left, right = self.views(batch)
        everything = self.all_gather(right)
        return self.match(left, everything.reshape(-1, 4), self.global_rank * len(left))  # type: ignore[union-attr]


class CorrectGatherWithoutGradient(Contrastive):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        left, right = self.views(batch)
        everything = self.all_gather(right, sync_grads=True)
        return self.match(left, everything.reshape(-1, 4), self.global_rank * len(left))  # type: ignore[union-attr]


class NegativesOfOneRank(Contrastive):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        left, right = self.views(batch)
        return self.match(left, right, 0)


class CorrectNegativesOfOneRank(Contrastive):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        left, right = self.views(batch)
        everything = self.all_gather(right, sync_grads=True)
        return self.match(left, everything.reshape(-1, 4), self.global_rank * len(left))  # type: ignore[union-attr]


# 14 gradients summed where their mean is expected, by a communication hook


def reduced(bucket: Any, operation: Any) -> torch.futures.Future[Tensor]:
    work: Any = distributed.all_reduce(bucket.buffer(), operation, async_op=True)
    future: torch.futures.Future[Tensor] = work.get_future().then(lambda future: future.value()[0])
    return future


def sum_of_ranks(state: None, bucket: distributed.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    return reduced(bucket, distributed.ReduceOp.SUM)


def mean_of_ranks(state: None, bucket: distributed.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    return reduced(bucket, distributed.ReduceOp.AVG)


class SummedBuckets(Regression):
    def on_train_start(self) -> None:
        if isinstance(self.trainer.model, DistributedDataParallel):
            self.trainer.model.register_comm_hook(None, sum_of_ranks)


class CorrectSummedBuckets(Regression):
    def on_train_start(self) -> None:
        if isinstance(self.trainer.model, DistributedDataParallel):
            self.trainer.model.register_comm_hook(None, mean_of_ranks)


# 16 gradients that DistributedDataParallel has reduced, reduced again


class ReducedTwice(Regression):
    def on_after_backward(self) -> None:
        for parameter in self.parameters():
            if parameter.grad is not None and self.trainer.world_size > 1:
                distributed.all_reduce(parameter.grad)


class CorrectReducedTwice(Regression):
    def on_after_backward(self) -> None:
        for parameter in self.parameters():
            if parameter.grad is not None and self.trainer.world_size > 1:
                distributed.all_reduce(parameter.grad, distributed.ReduceOp.AVG)


# 11 weights drawn again by each rank, after DistributedDataParallel has sent those of rank 0


class WeightsOfRank(Regression):
    def draw(self) -> None:
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(self.global_rank)
            for parameter in self.parameters():
                parameter.normal_(std=0.3)


class DrawnAfterWrapping(WeightsOfRank):
    def on_train_start(self) -> None:
        self.draw()


class CorrectDrawnAfterWrapping(WeightsOfRank):
    def setup(self, stage: str) -> None:
        self.draw()


# 22 a moving average of the weights that rank 0 alone updates


class Shadow(Regression):
    """Validates by a moving average of the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.shadow = copy.deepcopy(self.net).requires_grad_(False)

    def update(self) -> None:
        with torch.no_grad():
            for mean, parameter in zip(self.shadow.parameters(), self.net.parameters(), strict=True):
                mean.lerp_(parameter, 0.1)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("val_loss", mse_loss(self.shadow(batch[0]), batch[1]), sync_dist=True)


class ShadowOfRankZero(Shadow):
    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        if self.trainer.is_global_zero:
            self.update()


class CorrectShadowOfRankZero(Shadow):
    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        self.update()


# 21 a scale that each rank adapts to its share


class AdaptiveWeight(Regression):
    """Weights the loss by the error of earlier batches."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()), requires_grad=False)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        weighted = loss / float(self.weight)
        self.weight.data = 0.9 * self.weight.data + 0.1 * self.error(loss)
        return weighted

    def error(self, loss: Tensor) -> Tensor:
        raise NotImplementedError


class LocalWeight(AdaptiveWeight):
    def error(self, loss: Tensor) -> Tensor:
        return loss.detach()


class CorrectLocalWeight(AdaptiveWeight):
    def error(self, loss: Tensor) -> Tensor:
        return mean_over_ranks(loss)
