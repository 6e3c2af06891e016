"""Where training stands, and what follows a batch: a validation, the end of the epoch, the end of the run."""

import time
from contextlib import AbstractContextManager
from typing import Any

import torch

from lockstep.checkpoint.reading import ResumeState
from lockstep.launch.topology import RankContext
from lockstep.parallel.messages import all_reduce_sums
from lockstep.plan import Plan
from lockstep.progress import notice

PAUSE = 0.25  # seconds between two questions, about: a run may end that much later than at its time, plus a batch


class TimeLimit:
    """trainer.max_time: rank 0's clock ends training, after the same batch on every rank. A resume begins it anew.

    Asking rank 0 is a message, so its answer includes how many batches may pass until it is asked again.
    """

    def __init__(self, seconds: float | None, rank: int, device: torch.device) -> None:
        self.seconds, self.rank, self.device = seconds, rank, device
        self.passed = False
        self.begin()

    def begin(self) -> None:
        self.began, self.batches, self.next_question = time.perf_counter(), 0, 1

    def ends(self, steps: int) -> bool:
        """Whether training ends after this batch; every rank asks after each, with its number of optimizer steps."""
        if self.seconds is None or self.passed:
            return self.passed
        self.batches += 1
        if self.batches >= self.next_question:
            elapsed = time.perf_counter() - self.began
            remaining = self.seconds - elapsed
            ahead = max(1, int(max(0.0, min(PAUSE, remaining)) * self.batches / elapsed))
            answer = torch.tensor([remaining <= 0, ahead], dtype=torch.float64) * (self.rank == 0)
            over, batches = all_reduce_sums(answer, self.device).tolist()
            self.passed, self.next_question = bool(over), self.batches + int(batches)
            if self.passed and self.rank == 0:
                notice(f"trainer.max_time: {self.seconds:g} s are over after step {steps}; resume=true trains on")
        return self.passed


class RunProgress:
    """`position`: epochs, batches of the next one and optimizer steps that are done.

    interrupted_epoch: whether max_steps or max_time ends training within an epoch.
    ended: whether a callback has ended training before its last epoch.
    checking: whether a sanity check is under way, a validation before training whose results are discarded.
    has_validation: whether there is a validation loader and step.
    """

    def __init__(
        self, plan: Plan, context: RankContext, start: ResumeState, device: torch.device, has_validation: bool
    ) -> None:
        self.plan, self.context, self.position, self.has_validation = plan, context, start.position, has_validation
        self.time_limit = TimeLimit(plan.trainer.max_time, context.rank, device)
        self.interrupted_epoch = self.ended = self.checking = False

    @property
    def batches_per_step(self) -> int:
        return self.plan.steps.batches_per_step(self.position.epochs)

    @property
    def _batches(self) -> int:
        return self.position.epochs * (self.plan.steps.epoch_batches or 2**31) + self.position.batch

    def accepting_stop(self) -> AbstractContextManager[None]:
        """Start the clock of max_time; return a context around training, in which a request to stop is accepted."""
        self.time_limit.begin()
        return self.context.stop.accepting_stop(self._batches)

    def should_stop(self) -> bool:
        """Whether a stop was requested. To be called after each batch, on every rank."""
        return self.context.stop.should_stop(self._batches)

    def interrupts_epoch(self, trainer: Any) -> bool:
        """Whether max_steps or max_time ends training after this batch, which is not the last of its epoch.

        Then the checkpoint lies within the epoch, and what was logged until there becomes results.
        """
        is_over = self.plan.steps.is_finished(self.position.epochs, trainer.global_step)
        self.interrupted_epoch = (self.time_limit.passed or is_over) and not trainer.should_stop
        return self.interrupted_epoch

    def is_validation_due(self, trainer: Any) -> bool:
        """Whether a validation follows the current batch; as in Lightning, also where a callback stops training."""
        plan, epoch = self.plan, self.position.epochs + 1
        is_scheduled = plan.steps.is_validation_due(epoch, self.position.batch, trainer.is_last_batch)
        stopped = trainer.should_stop and epoch % plan.trainer.check_val_every_n_epoch == 0
        return self.has_validation and (is_scheduled or stopped)

    def epoch_goes_on(self, trainer: Any) -> bool:
        """Whether the epoch does not end after this batch; one that max_steps or max_time interrupts does not end."""
        return not trainer.is_last_batch and (self.interrupted_epoch or not trainer.should_stop)
