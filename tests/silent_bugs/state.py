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


# 28 a buffer that no checkpoint has, and an optimizer that the Trainer does not know


class Scaled(Regression):
    scale: Tensor

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.scale.mul_(0.9)
        return self.loss(batch) * self.scale


class PassingBuffer(Scaled):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(()), persistent=False)


class CorrectPassingBuffer(Scaled):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(()), persistent=True)


class TwoOptimizers(Regression):
    """Trains each layer by an optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def layers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(self.net[place].parameters(), self.lr, momentum=0.9) for place in (0, 2)]

    def both(self) -> list[Any]:
        raise NotImplementedError

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        self.zero_grad()
        self.manual_backward(self.loss(batch))
        for optimizer in self.both():
            optimizer.step()


class HiddenOptimizer(TwoOptimizers):
    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer, self.second = self.layers()
        return optimizer

    def both(self) -> list[Any]:
        return [self.optimizers(), self.second]


class CorrectHiddenOptimizer(TwoOptimizers):
    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer, second = self.layers()
        optimizer.add_param_group(second.param_groups[0])
        return optimizer

    def both(self) -> list[Any]:
        return [self.optimizers()]
