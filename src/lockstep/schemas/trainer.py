"""Arguments of Lightning's Trainer by their own names: what they mean here, for both engines."""

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from lockstep.batch_math import batch_count
from lockstep.config_error import config_error, require
from lockstep.schemas.scheduler import OwnScheduler

if TYPE_CHECKING:
    from lockstep.plan import Plan

Stage = Literal["train", "val", "test"]
PREFIX = "trainer."


@dataclass(frozen=True)
class Trainer:
    """`limit_*`: a whole number of global batches, or a share of them. None: as it is without the argument."""

    limit_train_batches: int | float
    limit_val_batches: int | float
    limit_test_batches: int | float
    fast_dev_run: bool | int
    max_steps: int
    check_val_every_n_epoch: int
    gradient_clip_algorithm: Literal["norm", "value"]
    deterministic: bool | Literal["warn"] | None
    benchmark: bool | None
    detect_anomaly: bool
    enable_progress_bar: bool | None

    def __post_init__(self) -> None:
        for name in LIMITS:
            value = getattr(self, name)
            instead = f"{PREFIX}{name}=10, say, or {PREFIX}{name}=0.5 for a half"
            require(value >= 0, PREFIX + name, value, "it must be 0 or more", instead)
            within = isinstance(value, int) or value <= 1
            require(within, PREFIX + name, value, "a share is at most 1.0, a number of batches is whole", instead)
        key, most = f"{PREFIX}max_steps", self.max_steps
        require(most >= 1 or most == -1, key, most, "it must be 1 or more, or -1 for no bound", f"{key}=1000, say")
        key, every = f"{PREFIX}check_val_every_n_epoch", self.check_val_every_n_epoch
        require(every >= 1, key, every, "it must be 1 or more", f"{key}=1, or {PREFIX}limit_val_batches=0 for none")
        key, runs = f"{PREFIX}fast_dev_run", self.fast_dev_run
        require(runs >= 0, key, runs, "it must be 0 or more batches, true or false", f"{key}=true")
        key, way = f"{PREFIX}deterministic", self.deterministic
        fits = way in (True, False, "warn", None) and not (isinstance(way, int) and not isinstance(way, bool))
        require(fits, key, way, "it is true, false, warn or null", f"{key}=true")

    def check(self, plan: "Plan") -> None:
        """Refuse what leaves nothing to train or to test on, and a way to clip where nothing is clipped."""
        if plan.train:
            self.limited("train", plan.data.train_samples, plan.batch_size, plan.drop_last)
        self.limited("val", plan.data.val_size, plan.batch_size)
        if plan.test and (size := getattr(plan.data, "test_size", None)):
            self.limited("test", size, plan.batch_size)
        self._check_validation(plan)
        if self.gradient_clip_algorithm != "norm" and plan.gradient_clip_val is None:
            key, why = f"{PREFIX}gradient_clip_algorithm", "without gradient_clip_val nothing is clipped"
            raise config_error(key, self.gradient_clip_algorithm, why, "gradient_clip_val=0.5, say, beside it")

    def _check_validation(self, plan: "Plan") -> None:
        """Refuse a schedule that waits for a validation after each epoch."""
        every, schedule = self.check_val_every_n_epoch, plan.scheduler
        if every == 1 or not isinstance(schedule, OwnScheduler) or not schedule.plateau:
            return
        if schedule.watched(plan).startswith("val/"):
            key, why = f"{PREFIX}check_val_every_n_epoch", f"the schedule steps by {schedule.watched(plan)} each epoch"
            raise config_error(key, every, why, f"{key}=1, or scheduler._monitor_=train/loss")

    def limited(self, stage: Stage, samples: int, batch_size: int, drop_last: bool = False) -> int:
        """How many of a split's samples are used: those of the first batches.

        Raises:
            ConfigError: none, though the split has some; validation may have none, if that is what was written.
        """
        return min(samples, self.kept(stage, batch_count(samples, batch_size, drop_last)) * batch_size)

    def kept(self, stage: Stage, batches: int) -> int:
        """Of so many batches, how many are used. Raises ConfigError, as above."""
        key = f"limit_{stage}_batches"
        limit = getattr(self, key)
        kept: int = min(limit, batches) if isinstance(limit, int) else int(limit * batches)
        if kept == 0 and batches > 0 and (limit > 0 or stage != "val"):
            why = f"of {batches} batches that is none"
            instead = f"{PREFIX}{key}=1" + (f", or {stage}=false" if stage != "val" else ", or 0 for no validation")
            raise config_error(PREFIX + key, limit, why, instead)
        return kept

    def resolved(self) -> "Trainer":
        """With the limits that `fast_dev_run` comes to."""
        if not self.fast_dev_run:
            return self
        few = int(self.fast_dev_run)
        return replace(self, limit_train_batches=few, limit_val_batches=few, limit_test_batches=few)


LIMITS = ("limit_train_batches", "limit_val_batches", "limit_test_batches")

DEFAULTS: dict[str, Any] = {
    "limit_train_batches": 1.0,
    "limit_val_batches": 1.0,
    "check_val_every_n_epoch": 1,
    "gradient_clip_algorithm": "norm",
}
"""Those that results depend on, as they are where nobody sets them: a checkpoint names the others alone."""


def what_matters(trainer: Trainer) -> dict[str, Any]:
    """By the keys of the command line, what results depend on and is not as by default."""
    own = {field.name: getattr(trainer, field.name) for field in fields(trainer)}
    return {PREFIX + name: own[name] for name, usual in DEFAULTS.items() if own[name] != usual}
