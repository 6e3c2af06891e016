"""The training step of a user's LightningModule on N virtual ranks: each rank's step in turn, on its own slice."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lockstep.loaders.rank_loader import BatchShare
from lockstep.parallel.virtual_ranks import VirtualRanks
from lockstep.plan import Plan
from lockstep.steps.exact_log import ExactLog
from lockstep.steps.loss_weight import LossWeighting, loss_of, loss_weight, with_loss
from lockstep.steps.manual_ranks import ManualRankScheduler, without_steps

Step = Callable[[Any], Any]
"""From a batch to what the module's training_step returns."""


class VirtualSteps:
    """`turns`: the threads of manual optimization, whose backward passes lie within the step; else None.

    transfer: brings the batch of a virtual rank to the device.
    """

    def __init__(
        self, plan: Plan, module: Any, log: ExactLog, weighting: LossWeighting, transfer: Callable[[Any], Any]
    ) -> None:
        self.plan, self.log, self.weighting, self.transfer = plan, log, weighting, transfer
        self.ranks = VirtualRanks(module, plan.strategy.layout(plan.devices).virtual_ranks, plan.seed)
        self.turns = None if module.automatic_optimization else ManualRankScheduler(module, self.ranks)
        self.batches = 1

    def begin(self, share: BatchShare, batches: int) -> None:
        """Begin a batch of an optimizer step that has `batches` of them."""
        self.share, self.batches = share, batches
        self.ranks.begin()

    def optimizers(self, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return the optimizers or schedules of a method; in the turn of a rank above 0, such as do not step."""
        returned = original(*arguments, **options)
        return without_steps(returned) if self.turns is not None and self.turns.rank else returned

    def run(self, batch: Any, step: Step, require_loss: Callable[[Any], Tensor | None]) -> tuple[Any, Tensor | None]:
        """Run the step of every rank.

        Args:
            batch: rank 0's; the other ranks' are in the share.
            require_loss: returns the loss among the outputs of a step, or raises.

        Returns:
            The outputs for the engine, and the mean loss over all ranks.
        """
        if self.turns is not None:
            outputs, loss = self._in_turns(self.turns, batch, step)
        else:
            outputs, loss = self._one_after_another(batch, step, require_loss)
        self.log.samples, self.log.virtual_rank = self.share.samples, 0
        return outputs, loss

    def _in_turns(self, turns: ManualRankScheduler, batch: Any, step: Step) -> tuple[Any, Tensor | None]:
        """Run each rank's step up to its next backward pass in turn; return rank 0's outputs."""
        share = self.share
        counts = [share.count, *(count for _, count in share.others)]
        batches = [batch, *(self.transfer(part) if count else None for part, count in share.others)]
        steps = [partial(step, part) for part, count in zip(batches, counts, strict=True) if count]

        def begin(rank: int) -> None:
            self.log.samples, self.log.virtual_rank = counts[rank], rank
            self.weighting.weight = loss_weight(self.plan, share, counts[rank], 1, self.batches)

        outputs = turns.run(steps, begin)
        begin(0)
        losses = [(loss_of(each), count) for each, count in zip(outputs, counts, strict=False)]
        weighted = [loss.detach() * count for loss, count in losses if loss is not None]
        return outputs[0], torch.stack(weighted).sum() / share.samples if weighted else None

    def _one_after_another(
        self, batch: Any, step: Step, require_loss: Callable[[Any], Tensor | None]
    ) -> tuple[Any, Tensor | None]:
        """Add the weighted losses of all ranks, for one backward pass."""
        share = self.share
        self.log.samples = share.count
        outputs = step(batch)
        first = require_loss(outputs)
        if first is None:
            return outputs, None
        total = first * loss_weight(self.plan, share, share.count, 1, self.batches)
        loss_sum = first.detach() * share.count
        for rank, (part, count) in enumerate(share.others, start=1):
            if count:
                self.log.samples, self.log.virtual_rank = count, rank
                with self.ranks.as_rank(rank):
                    loss = require_loss(step(self.transfer(part)))
                if loss is not None:
                    total = total + loss * loss_weight(self.plan, share, count, 1, self.batches)
                    loss_sum = loss_sum + loss.detach() * count
        return with_loss(outputs, total), loss_sum / share.samples
