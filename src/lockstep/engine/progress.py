"""The position of training, and what follows a batch."""

from contextlib import AbstractContextManager
from typing import Any

from lockstep.launch.topology import RankContext
from lockstep.plan.plan import Plan
from lockstep.runs.checkpoint.content import Progress


class RunProgress:
    """`position`: epochs, batches of the next one and optimizer steps that are done.

    interrupted_epoch: max_steps ends training within an epoch. ended: a callback has ended training early.
    """

    def __init__(self, plan: Plan, context: RankContext, position: Progress, has_validation: bool) -> None:
        self.plan, self.context, self.position, self.has_validation = plan, context, position, has_validation
        self.interrupted_epoch = self.ended = False

    @property
    def _batches(self) -> int:
        return self.position.epochs * (self.plan.steps.epoch_batches or 2**31) + self.position.batch

    def accepting_stop(self) -> AbstractContextManager[None]:
        """Return a context around training, in which a request to stop is accepted."""
        return self.context.stop.accepting_stop(self._batches)

    def should_stop(self) -> bool:
        """Whether a stop was requested. To be called after each batch, on every rank."""
        return self.context.stop.should_stop(self._batches)

    def update_interrupted(self, trainer: Any) -> bool:
        """Set and return whether max_steps ends training after this batch, which is not the last of its epoch."""
        is_over = self.plan.steps.is_finished(self.position.epochs, trainer.global_step)
        self.interrupted_epoch = is_over and not trainer.should_stop
        return self.interrupted_epoch

    def is_validation_due(self, trainer: Any) -> bool:
        """Whether a validation follows the current batch; as in Lightning, also where a callback stops training."""
        plan, epoch = self.plan, self.position.epochs + 1
        is_scheduled = plan.steps.is_validation_due(epoch, self.position.batch, trainer.is_last_batch)
        stopped = trainer.should_stop and epoch % (plan.trainer.check_val_every_n_epoch or 1) == 0
        return self.has_validation and (is_scheduled or stopped)

    def epoch_goes_on(self, trainer: Any) -> bool:
        """Whether the epoch does not end after this batch; one that max_steps interrupts does not end."""
        return not trainer.is_last_batch and (self.interrupted_epoch or not trainer.should_stop)
