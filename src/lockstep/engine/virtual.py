"""The steps of a LightningModule on N virtual ranks: each rank's step in turn, on its own slice.

The losses of all ranks, each weighted by its samples, are added, and one backward pass follows.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any

import torch

from lockstep.base.structures import predictions_of
from lockstep.engine.loaders import BatchShare
from lockstep.engine.loaders.source import RankData
from lockstep.engine.log import ExactLog
from lockstep.engine.step import ModuleStep
from lockstep.plan.plan import Plan
from lockstep.runs.checkpoint.content import Progress
from lockstep.strategies.parallel.virtual_ranks import VirtualRanks

PREDICTIONS = ("logits", "preds", "targets")


class VirtualSteps(ModuleStep):
    """`rank`: the one whose step runs, or -1.

    counts: the samples of each rank in the batch, if it has any.
    """

    def __init__(self, plan: Plan, module: Any, log: ExactLog, data: RankData, reports: bool) -> None:
        super().__init__(plan, module, log, data, reports)
        self.virtual = VirtualRanks(module, plan.strategy.virtual_ranks(plan), plan.seed)
        self.rank = -1
        self._replace_evaluation_steps(self._evaluation_step)

    def begin(self, share: BatchShare, position: Progress) -> None:
        super().begin(share, position)
        self.weight = 1.0  # each rank's loss has a weight of its own
        self.virtual.begin()

    @property
    def samples(self) -> int:
        """Return this process's samples of the batch: those of all ranks."""
        return self.share.samples

    def _training_step(self, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Run the step of every rank; return rank 0's outputs, with the sum of all weighted losses."""
        if self.rank >= 0:  # called by another step
            return original(*arguments, **options)
        if self.position.batch % self.batches == 0:
            self.virtual.share(self.shared_buffers)
        outputs = self._one_after_another(original, *arguments, **options)
        losses = [(loss, rank) for rank, each in enumerate(outputs) if (loss := self._require_loss(each)) is not None]
        if not losses:
            self.loss = None
            return outputs[0]
        weights, factors = self._weights(outputs)
        counted = [loss.detach() * weights[rank] for loss, rank in losses if weights[rank]]
        self.loss = reduce(add, counted) / sum(weights) if counted else None
        total = reduce(add, (loss * factors[rank] for loss, rank in losses))
        return {**outputs[0], "loss": total} if isinstance(outputs[0], dict) else total

    def _weights(self, outputs: Sequence[Any]) -> tuple[Sequence[float], Sequence[float]]:
        """Return what the loss of each rank counts in their mean, and its factor in the loss for backward."""
        weights = [weight for each in outputs if (weight := self.weights.read(each)) is not None]
        if not weights:
            if self.share.dropped:
                self._require_all_samples()
            factors = [self.loss_weight(count, averaged_over=1) for count in self.counts]
            return self.counts, factors
        self.weights.batch = sum(weights)
        return weights, [weight * self.batches for weight in weights]

    def _evaluation_step(self, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Run the step of every rank; return rank 0's outputs, with the predictions of all ranks."""
        if self.rank >= 0:
            return original(*arguments, **options)
        return join_outputs(self._one_after_another(original, *arguments, **options))

    def _one_after_another(self, step: Callable[..., Any], batch: Any, *rest: Any, **options: Any) -> list[Any]:
        """Run the step of each rank that has samples to its end, and return their outputs; set `counts`."""
        others = [(rank_batch, count) for rank_batch, count in self.share.others if count]
        self.counts = [self.share.count, *(count for _, count in others)]
        outputs = []
        for rank, count in enumerate(self.counts):
            self.rank = self.log.virtual_rank = rank
            self.log.samples = count
            with self.virtual.as_rank(rank):
                rank_batch = batch if rank == 0 else self.data.transfer(others[rank - 1][0], self.loader)
                outputs.append(step(rank_batch, *rest, **options))
        self.rank, self.log.virtual_rank, self.log.samples = -1, 0, self.samples
        return outputs


def join_outputs(outputs: Sequence[Any]) -> Any:
    """Return the outputs of the first rank, with the predictions of all of them."""
    first = outputs[0]
    if len(outputs) == 1 or not all(predictions_of(each) is not None for each in outputs):
        return first
    return {**first, **{name: torch.cat([each[name] for each in outputs]) for name in PREDICTIONS if name in first}}
