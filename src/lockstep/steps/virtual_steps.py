"""The training step of a user's LightningModule on N virtual ranks: each rank's step in turn, on its own slice."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add
from typing import Any

from torch import Tensor

from lockstep.loaders.rank_loader import BatchShare
from lockstep.parallel.virtual_ranks import VirtualRanks
from lockstep.plan import Plan
from lockstep.steps.exact_log import ExactLog
from lockstep.steps.loss_weight import Step, loss_of, loss_weight, with_loss
from lockstep.steps.manual_ranks import ManualRankScheduler, without_steps

TrainingStep = Callable[[Any], Any]
"""From a batch to the return value of the module's training_step."""


class VirtualSteps:
    """`scheduler` runs the ranks of manual optimization, whose backward passes lie within the step; else None.

    transfer: moves the batch of a virtual rank to the device.
    """

    def __init__(self, plan: Plan, module: Any, log: ExactLog, weighting: Step, transfer: Callable[[Any], Any]) -> None:
        self.plan, self.log, self.weighting, self.transfer = plan, log, weighting, transfer
        self.ranks = VirtualRanks(module, plan.strategy.layout(plan.devices).virtual_ranks, plan.seed)
        self.scheduler = None if module.automatic_optimization else ManualRankScheduler(module, self.ranks)
        self.batches = 1

    def begin(self, share: BatchShare, batches: int) -> None:
        """Begin a batch of an optimizer step that has `batches` of them."""
        self.share, self.batches = share, batches
        self.ranks.begin()

    def optimizers(self, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return the optimizers or schedules of a method; for a rank above 0, such as do not step."""
        returned = original(*arguments, **options)
        return without_steps(returned) if self.scheduler is not None and self.scheduler.rank else returned

    def run(
        self, batch: Any, step: TrainingStep, require_loss: Callable[[Any], Tensor | None]
    ) -> tuple[Any, Tensor | None]:
        """Run the step of every rank.

        Args:
            batch: rank 0's; the other ranks' are in the share.
            require_loss: returns the loss in the outputs of a step, or raises.

        Returns:
            The outputs for the engine, and the mean loss over all ranks.
        """
        others = [(rank_batch, count) for rank_batch, count in self.share.others if count]
        counts = [self.share.count, *(count for _, count in others)]
        weights = [loss_weight(self.plan, self.share, count, 1, self.batches) for count in counts]
        calls = [partial(step, batch), *(partial(self._transfer_and_step, step, each) for each, _ in others)]

        def begin(rank: int) -> None:
            self.log.samples, self.log.virtual_rank = counts[rank], rank
            if self.scheduler is not None:
                self.weighting.weight = weights[rank]

        run = self._one_after_another if self.scheduler is None else self.scheduler.run
        outputs = run(calls, begin)
        begin(0)
        self.log.samples = self.share.samples
        losses = [loss_of(each) if self.scheduler is not None else require_loss(each) for each in outputs]
        pairs = [(loss, index) for index, loss in enumerate(losses) if loss is not None]
        if not pairs:
            return outputs[0], None
        mean = reduce(add, (loss.detach() * counts[index] for loss, index in pairs)) / self.share.samples
        if self.scheduler is not None:
            return outputs[0], mean
        return with_loss(outputs[0], reduce(add, (loss * weights[index] for loss, index in pairs))), mean

    def _transfer_and_step(self, step: TrainingStep, batch: Any) -> Any:
        return step(self.transfer(batch))

    def _one_after_another(self, calls: Sequence[Callable[[], Any]], begin: Callable[[int], None]) -> list[Any]:
        """Run the step of each rank to its end, and return their outputs."""
        outputs = []
        for rank, call in enumerate(calls):
            begin(rank)
            with self.ranks.as_rank(rank):
                outputs.append(call())
        return outputs
