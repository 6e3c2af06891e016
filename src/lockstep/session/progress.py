"""Where training stands, and what follows a batch: a validation, the end of the epoch, the end of the run."""

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from lockstep.checkpoint.content import Progress
from lockstep.checkpoint.reading import ResumeState
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.time_limit import TimeLimit


class RunProgress:
    """`position`: epochs, batches of the next one and optimizer steps that are done.

    interrupted_epoch: whether max_steps or max_time ends training within an epoch.
    ended: whether a callback has ended training before its last epoch.
    checking: whether a sanity check is under way, a validation before training of which nothing is kept.
    has_validation: whether there is anything to validate on.
    """

    def __init__(
        self, plan: Plan, context: RankContext, start: ResumeState, time_limit: TimeLimit, has_validation: bool
    ) -> None:
        self.plan, self.context, self.start = plan, context, start
        self.time_limit, self.has_validation = time_limit, has_validation
        self.position = replace(start.at)
        self.interrupted_epoch = self.ended = self.checking = False

    @property
    def batches_per_step(self) -> int:
        """Return the batches of an optimizer step in the current epoch."""
        return self.plan.steps.batches_per_step(self.position.epochs)

    @property
    def is_finished(self) -> bool:
        """Whether training was done when the run was interrupted: what is left is to be tested."""
        if self.start.content is None or self.start.checkpoint is None:
            return False
        done = self.plan.steps.is_finished(self.start.at.epochs, self.start.checkpoint["global_step"])
        return self.plan.train and (done or (self.plan.resume and self.start.content.ended))

    @property
    def has_sanity_check(self) -> bool:
        """Whether some batches are validated before training, of which nothing is kept. As in Lightning, not where a
        run begins at a checkpoint.
        """
        wanted = self.plan.trainer.num_sanity_val_steps != 0
        return wanted and self.has_validation and self.start.checkpoint is None

    def accepting_stop(self) -> AbstractContextManager[None]:
        """Return a context around training, in which a request to stop is accepted."""
        self.time_limit.begin()
        return self.context.stop.accepting_stop(self._batches(self.start.at))

    def should_stop(self) -> bool:
        """Whether someone asked for the end of training. To be asked after each batch, by every rank."""
        return self.context.stop.should_stop(self._batches(self.position))

    def _batches(self, at: Progress) -> int:
        return at.epochs * (self.plan.steps.epoch_batches or 2**31) + at.batch

    def is_over(self, trainer: Any) -> bool:
        """Whether no further epoch begins."""
        done = self.plan.steps.is_finished(self.position.epochs, trainer.global_step)
        return done or self.time_limit.passed or bool(trainer.should_stop)

    def interrupts_epoch(self, trainer: Any) -> bool:
        """Whether a bound of steps or time ends training behind this batch, which is not the epoch's last.

        Its checkpoint lies within the epoch, so that training can go on from there; what has been logged of the part
        still becomes results.
        """
        done = self.time_limit.passed or self.plan.steps.is_finished(self.position.epochs, trainer.global_step)
        self.interrupted_epoch = done and not trainer.should_stop
        return self.interrupted_epoch

    def is_validation_due(self, trainer: Any, last: bool) -> bool:
        """Whether a validation follows the batch that is done; as Lightning does where a callback asks for the end.

        Args:
            last: whether it is the last batch of the epoch.
        """
        plan, epoch = self.plan, self.position.epochs + 1
        due = plan.steps.is_validation_due(epoch, self.position.batch, last)
        stopped = trainer.should_stop and epoch % plan.trainer.check_val_every_n_epoch == 0
        return self.has_validation and (due or stopped)

    def epoch_goes_on(self, trainer: Any, last: bool) -> bool:
        """Whether the epoch does not end behind this batch; one that max_steps or max_time interrupts does not."""
        return not last and (self.interrupted_epoch or not trainer.should_stop)
