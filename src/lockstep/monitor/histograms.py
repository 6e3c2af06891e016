"""Histograms of weights and gradients for TensorBoard, every N epochs."""

from collections.abc import Mapping

from torch import Tensor, nn

from lockstep.loggers import Loggers
from lockstep.parallel.tensor_layout import full_tensor
from lockstep.plan import Plan
from lockstep.schemas.target import tensorboard_of


class Histograms:
    """Both engines call `end_steps`, validate if that is due, and call `end_epoch`, on every rank."""

    def __init__(self, plan: Plan, loggers: Loggers, module: nn.Module) -> None:
        self.module, self.board, options = module, loggers.board, tensorboard_of(plan)
        takes_part = self.board is not None or plan.strategy.sharded  # each rank has a shard of what rank 0 shows
        self.every = options.histograms if options is not None and takes_part else 0
        self.gradients: Mapping[str, Tensor] = {}

    def end_steps(self, epoch: int) -> None:
        """Copy the gradients of the last step of an epoch (from 1), since a validation may clear them."""
        if self._is_due(epoch):
            self.gradients = {
                name: full_tensor(parameter.grad).detach().clone()
                for name, parameter in self.module.named_parameters()
                if parameter.grad is not None
            }

    def end_epoch(self, epoch: int, step: int) -> None:
        """Show the weights after an epoch (from 1) and the gradients of its last step."""
        if not self._is_due(epoch):
            return
        for name, parameter in self.module.named_parameters():
            weight = full_tensor(parameter.detach())  # on every rank: it may be sharded
            if self.board is not None:
                self.board.writer.add_histogram(f"weights/{name}", weight, step)
                if name in self.gradients:
                    self.board.writer.add_histogram(f"weights/{name}/gradient", self.gradients[name], step)
        self.gradients = {}

    def _is_due(self, epoch: int) -> bool:
        return self.every > 0 and epoch % self.every == 0
