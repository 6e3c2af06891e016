"""Loss and gradients: the step of N ranks is not the step of one."""

from typing import Any

import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from tests.silent_bugs.base import Batch, Regression, mean_over_ranks, rank_and_world

# 5 a mean of means: of the positions that count, or of the samples of a ragged batch


class Counted(Regression):
    """A loss of the samples that count: those with a positive first input, as tokens that are no padding."""

    def errors(self, batch: Batch) -> tuple[Tensor, Tensor]:
        counted = (batch[0][:, :1] > 0).to(batch[0].dtype)
        return (self(batch[0]) - batch[1]).square() * counted, counted


class MeanOfCounted(Counted):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        errors, counted = self.errors(batch)
        return errors.sum() / counted.sum().clamp(min=1)


class CorrectMeanOfCounted(Counted):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        errors, counted = self.errors(batch)
        return errors.sum() / len(counted)


class CountOfAllRanks(Counted):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        errors, counted = self.errors(batch)
        return errors.sum() / (mean_over_ranks(counted.sum()) * rank_and_world()[1])


class CorrectCountOfAllRanks(Counted):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        errors, counted = self.errors(batch)
        return errors.sum() / mean_over_ranks(counted.sum())


class RaggedBatch(Regression):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return mse_loss(self(batch[0]), batch[1])


class CorrectRaggedBatch(Regression):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        full: int = self.trainer.train_dataloader.batch_size  # type: ignore[union-attr]
        return mse_loss(self(batch[0]), batch[1], reduction="sum") / full


# 8 a layer that DistributedDataParallel does not see: its gradients never meet


class HiddenLayer(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(4, 4)]

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.net(self.layers[0].to(inputs)(inputs))
        return outputs

    def configure_optimizers(self) -> OptimizerLRScheduler:
        return torch.optim.SGD([*self.net.parameters(), *self.layers[0].parameters()], self.lr)


class CorrectHiddenLayer(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4)])

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.net(self.layers[0].to(inputs)(inputs))
        return outputs

    def configure_optimizers(self) -> OptimizerLRScheduler:
        return torch.optim.SGD([*self.net.parameters(), *self.layers[0].parameters()], self.lr)


# 9 manual optimization by loss.backward()


class Manual(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def optimizer(self) -> Any:
        return self.optimizers()


class PlainBackward(Manual):
    def training_step(self, batch: Batch, batch_idx: int) -> None:
        self.optimizer().zero_grad()
        self.loss(batch).backward()  # type: ignore[no-untyped-call]
        self.optimizer().step()


class CorrectPlainBackward(Manual):
    def training_step(self, batch: Batch, batch_idx: int) -> None:
        self.optimizer().zero_grad()
        self.manual_backward(self.loss(batch))
        self.optimizer().step()


# 10 parameters unfrozen after DistributedDataParallel has looked for those with a gradient


class LateUnfreezing(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.net[0].requires_grad_(False)

    def on_train_epoch_start(self) -> None:
        if self.current_epoch == 1:
            self.net[0].requires_grad_(True)


class CorrectLateUnfreezing(Regression):
    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        if self.current_epoch < 1:
            self.net[0].zero_grad(set_to_none=True)


# 15 gradients of micro-batches added up, and not divided by their number


class MicroBatches(Manual):
    rows = 2

    def losses(self, batch: Batch) -> list[Tensor]:
        parts = zip(*(each.split(self.rows) for each in batch), strict=True)  # type: ignore[no-untyped-call]
        return [self.loss([*part]) for part in parts]


class UndividedMicroBatches(MicroBatches):
    def training_step(self, batch: Batch, batch_idx: int) -> None:
        self.optimizer().zero_grad()
        for loss in self.losses(batch):
            self.manual_backward(loss)
        self.optimizer().step()


class CorrectUndividedMicroBatches(MicroBatches):
    def training_step(self, batch: Batch, batch_idx: int) -> None:
        self.optimizer().zero_grad()
        for loss in self.losses(batch):
            self.manual_backward(loss * self.rows / len(batch[0]))
        self.optimizer().step()


# 9 each rank decides by its own loss whether it steps


class Careful(Manual):
    """Leaves out a step whose loss is large: outliers spoil the weights."""

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        loss = self.loss(batch)
        self.optimizer().zero_grad()
        self.manual_backward(loss)
        if self.judged(loss) < 1.5:
            self.optimizer().step()

    def judged(self, loss: Tensor) -> Tensor:
        raise NotImplementedError


class StepsOfRank(Careful):
    def judged(self, loss: Tensor) -> Tensor:
        return loss


class CorrectStepsOfRank(Careful):
    def judged(self, loss: Tensor) -> Tensor:
        return mean_over_ranks(loss)


# 12 a loss divided by the number of ranks, whose gradients are averaged anyway


class AveragedTwice(Regression):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self.loss(batch) / self.trainer.world_size


class CorrectAveragedTwice(Regression):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self.loss(batch) / 2


# 18 clipping: of the gradients of one rank before they meet, or of each batch of a step

LIMIT = 0.05


class LocalClipping(Regression):
    def on_train_start(self) -> None:
        for parameter in self.parameters():
            parameter.register_hook(lambda gradient: gradient.clamp(-LIMIT, LIMIT))  # type: ignore[no-untyped-call]


class CorrectLocalClipping(Regression):
    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad.clamp_(-LIMIT, LIMIT)


class ClippedEveryBatch(Regression):
    def on_after_backward(self) -> None:
        clip_grad_norm_(self.parameters(), LIMIT)


class CorrectClippedEveryBatch(Regression):
    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        clip_grad_norm_(self.parameters(), LIMIT)


# 27 a loss, or a term of it, that grows with the share of a rank


class SummedLoss(Regression):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return 0.1 * mse_loss(self(batch[0]), batch[1], reduction="sum")


class CorrectSummedLoss(Regression):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return 0.1 * mse_loss(self(batch[0]), batch[1], reduction="mean")


class PenaltyOfBatch(Regression):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        penalty = sum(parameter.square().sum() for parameter in self.parameters())
        return self.loss(batch) + penalty / len(batch[0])


class CorrectPenaltyOfBatch(Regression):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        penalty = sum(parameter.square().sum() for parameter in self.parameters())
        return self.loss(batch) + penalty / 8
