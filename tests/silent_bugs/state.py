"""State, checkpoints and resume: a run that was interrupted does not go on as the one that was not."""

from typing import Any

import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.nn.functional import mse_loss

from tests.silent_bugs.base import Batch, Regression, mean_over_ranks, rank_and_world

Checkpoint = dict[str, Any]

# 25 each rank holds a part of a state, and the checkpoint has that of rank 0


class ShardedMean(Regression):
    """Centres inputs on their running mean, of which each rank holds some features."""

    def setup(self, stage: str) -> None:
        rank, world = rank_and_world()
        self.features = slice(rank * 4 // world, (rank + 1) * 4 // world)
        if not hasattr(self, "shard"):
            self.shard = torch.zeros(4, dtype=torch.float64)[self.features]

    def mean(self) -> Tensor:
        gathered = self.all_gather(self.shard)
        return gathered.reshape(4)  # type: ignore[union-attr]

    def loss(self, batch: Batch) -> Tensor:
        inputs, targets = batch
        if self.training:
            self.shard = 0.5 * self.shard + 0.5 * mean_over_ranks(inputs.mean(dim=0))[self.features]
        return mse_loss(self(inputs - self.mean().to(inputs)), targets)


class ShardOfRankZero(ShardedMean):
    def on_save_checkpoint(self, checkpoint: Checkpoint) -> None:
        checkpoint["shard"] = self.shard

    def on_load_checkpoint(self, checkpoint: Checkpoint) -> None:
        self.shard = checkpoint["shard"]


class CorrectShardOfRankZero(ShardedMean):
    def on_save_checkpoint(self, checkpoint: Checkpoint) -> None:
        checkpoint["mean"] = self.mean()

    def on_load_checkpoint(self, checkpoint: Checkpoint) -> None:
        self.shard = checkpoint["mean"][self.features]


# 28 momentum that a checkpoint does not hold, and state in a plain attribute


class Momentum(Regression):
    def configure_optimizers(self) -> OptimizerLRScheduler:
        return torch.optim.SGD(self.parameters(), self.lr, momentum=0.9)


class SlimCheckpoint(Momentum):
    def on_save_checkpoint(self, checkpoint: Checkpoint) -> None:
        for state in checkpoint["optimizer_states"]:
            state["state"] = {}


class CorrectSlimCheckpoint(Momentum):
    def on_save_checkpoint(self, checkpoint: Checkpoint) -> None:
        checkpoint["slim"] = False


class AttributeLost(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.ones(())

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.scale.mul_(0.9)
        return self.loss(batch) * self.scale


class CorrectAttributeLost(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(()))
        self.scale: Tensor

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.scale.mul_(0.9)
        return self.loss(batch) * self.scale
