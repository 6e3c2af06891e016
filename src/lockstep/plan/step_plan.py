"""Counts of batches and optimizer steps of a run, computed from its plan. No torch here."""

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.plan.plan import Plan


STAGES = ("train", "val", "test")


def batch_count(samples: int, batch_size: int, drop_last: bool = False) -> int:
    """Return the number of global batches of an epoch."""
    return samples // batch_size if drop_last else -(-samples // batch_size)


class StepPlan:
    """The schedule of batches, optimizer steps and validations. Epochs and batches are counted from 0 unless noted."""

    def __init__(self, plan: "Plan") -> None:
        self.plan = plan

    @cached_property
    def split_batches(self) -> dict[str, int]:
        """Return the global batches of all samples by stage; 0 if only a user's loader determines them."""
        data, size = self.plan.data, self.plan.batch_size
        train = batch_count(data.train_samples, size, self.plan.drop_last)
        if not data.regular:
            train = data.train_batches
        val, test = (
            batch_count(samples, sizes[0] if len(sizes) == 1 and sizes[0] else size)
            for samples, sizes in ((data.val_size, data.val_batch_sizes), (data.test_size, data.test_batch_sizes))
        )
        return {"train": train, "val": val, "test": test}

    @cached_property
    def epoch_batches(self) -> int:
        """Return the global batches of an epoch; 0 if only a user's loader determines the length of an epoch."""
        if self.plan.trainer.reload_dataloaders_every_n_epochs:  # each may have another length
            return 0
        return self.plan.trainer.limit("train", self.split_batches["train"])

    @cached_property
    def validation_batches(self) -> int | None:
        """Return the batches between validations within an epoch; None: at its end, if its length is unknown."""
        interval = self.plan.trainer.val_check_interval
        if isinstance(interval, int):
            return interval
        return max(1, int(self.epoch_batches * interval)) if self.epoch_batches else None

    def is_validation_due(self, epoch: int, batch: int, last: bool) -> bool:
        """Whether a validation is due after `batch` batches of an epoch, counted from 1; `last`: of all batches."""
        every, epochs = self.validation_batches, self.plan.trainer.check_val_every_n_epoch
        batch += 0 if epochs else (epoch - 1) * self.epoch_batches
        due = last if every is None else batch % every == 0
        return due and epoch % (epochs or 1) == 0

    def is_finished(self, epochs: int, steps: int) -> bool:
        """Whether training is over after so many epochs, and steps as counted by Lightning's global_step."""
        return epochs >= self.plan.max_epochs or 0 < self.plan.trainer.max_steps <= steps

    def steps_before(self, epoch: int, batch: int = 0) -> int:
        """Return the optimizer steps of the run before batch `batch` of epoch `epoch`."""
        accumulate = self.plan.accumulate_grad_batches
        return epoch * batch_count(self.epoch_batches, accumulate) + batch // accumulate

    @property
    def total_steps(self) -> int:
        """Return the optimizer steps of the run; 0 if unknown."""
        steps, max_steps = self.steps_before(self.plan.max_epochs), self.plan.trainer.max_steps
        return steps if max_steps == -1 else min(steps or max_steps, max_steps)
