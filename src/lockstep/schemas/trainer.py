"""Arguments of Lightning's Trainer by their own names: what they mean here, for both engines."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from lockstep.batch_math import batch_count
from lockstep.config_error import config_error, is_number, require
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
    overfit_batches: int | float
    fast_dev_run: bool | int
    max_steps: int
    max_time: float | str | dict[str, float] | None
    val_check_interval: int | float
    check_val_every_n_epoch: int
    num_sanity_val_steps: int
    gradient_clip_algorithm: Literal["norm", "value"]
    deterministic: bool | Literal["warn"] | None
    benchmark: bool | None
    detect_anomaly: bool
    enable_progress_bar: bool | None
    enable_model_summary: bool
    barebones: bool

    def __post_init__(self) -> None:
        for name in (*LIMITS, "overfit_batches"):
            value = getattr(self, name)
            instead = f"{PREFIX}{name}=10, say, or {PREFIX}{name}=0.5 for a half"
            require(value >= 0, PREFIX + name, value, "it must be 0 or more", instead)
            within = isinstance(value, int) or value <= 1
            require(within, PREFIX + name, value, "a share is at most 1.0, a number of batches is whole", instead)
        key, most = f"{PREFIX}max_steps", self.max_steps
        require(most >= 1 or most == -1, key, most, "it must be 1 or more, or -1 for no bound", f"{key}=1000, say")
        seconds_of(self.max_time)
        key, every = f"{PREFIX}check_val_every_n_epoch", self.check_val_every_n_epoch
        require(every >= 1, key, every, "it must be 1 or more", f"{key}=1, or {PREFIX}limit_val_batches=0 for none")
        key, batches = f"{PREFIX}num_sanity_val_steps", self.num_sanity_val_steps
        require(batches >= -1, key, batches, "it must be 0 or more, or -1 for all batches", f"{key}=2")
        if self.barebones:
            from lockstep.schemas.barebones import require_bare

            require_bare(self)
        key, share = f"{PREFIX}val_check_interval", self.val_check_interval
        instead = f"{key}=100, say, or {key}=0.25 for four times an epoch"
        require(share > 0, key, share, "it must be more than 0", instead)
        within = isinstance(share, int) or share <= 1
        require(within, key, share, "a share is at most 1.0, a number of batches is whole", instead)
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
        if self.max_time is not None and plan.engine.name == "both":
            why = "no clock ends two runs after the same step"
            raise config_error(f"{PREFIX}max_time", self.max_time, why, f"{PREFIX}max_steps=1000, say, or one engine")
        if self.enable_model_summary and not plan.model.lightning:
            key, why = f"{PREFIX}enable_model_summary", "the summary is of a LightningModule"
            raise config_error(key, True, why, "model_summary=true, which is of any net")
        if self.barebones:
            from lockstep.schemas.barebones import require_nothing_saved

            require_nothing_saved(plan)
        self._check_interval(plan)
        self._check_validation(plan)
        if self.gradient_clip_algorithm != "norm" and plan.gradient_clip_val is None:
            key, why = f"{PREFIX}gradient_clip_algorithm", "without gradient_clip_val nothing is clipped"
            raise config_error(key, self.gradient_clip_algorithm, why, "gradient_clip_val=0.5, say, beside it")

    def _check_interval(self, plan: "Plan") -> None:
        """Refuse more batches than there are, and a share of an epoch whose end nobody knows."""
        key, every, batches = f"{PREFIX}val_check_interval", self.val_check_interval, plan.steps.epoch_batches
        if not plan.train or self.limit_val_batches == 0:
            return
        if batches == 0 and isinstance(every, float):
            require(every == 1, key, every, "nobody knows how long an epoch is", f"{key}=100, say, or {key}=1.0")
        elif batches and isinstance(every, int):
            require(every <= batches, key, every, f"an epoch has {batches} batches", f"{key}={batches}, or fewer")

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
        """With the limits that `overfit_batches` and `fast_dev_run` come to, and a time in seconds."""
        own = replace(self, max_time=seconds_of(self.max_time))
        if self.barebones:
            own = replace(own, enable_progress_bar=False)
        if self.overfit_batches:
            for name in ("limit_train_batches", "limit_val_batches"):
                limit, why = getattr(self, name), f"{PREFIX}overfit_batches={self.overfit_batches} says how many"
                usual = isinstance(limit, float) and limit == 1.0
                require(usual or limit == self.overfit_batches, PREFIX + name, limit, why, "one of the two")
            own = replace(own, limit_train_batches=self.overfit_batches, limit_val_batches=self.overfit_batches)
        if not self.fast_dev_run:
            return own
        few = int(self.fast_dev_run)
        own = replace(own, val_check_interval=1.0, check_val_every_n_epoch=1, num_sanity_val_steps=0)
        return replace(own, limit_train_batches=few, limit_val_batches=few, limit_test_batches=few)

    @property
    def sanity_batches(self) -> int | None:
        """Of each validation loader, before training; None: all."""
        return None if self.num_sanity_val_steps == -1 else self.num_sanity_val_steps

    @property
    def seconds(self) -> float | None:
        """Of `max_time`."""
        return seconds_of(self.max_time)


UNITS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}


def seconds_of(given: object) -> float | None:
    """Of a time as Lightning takes one: DD:HH:MM:SS, or days, hours, minutes and seconds; a number is of seconds.

    Raises:
        ConfigError: it is none, or no time at all.
    """
    parts: Mapping[object, object] | None = given if isinstance(given, Mapping) else None
    if isinstance(given, str) and (found := re.fullmatch(r"(\d+):(\d\d):(\d\d):(\d\d)", given.strip())):
        parts = dict(zip(UNITS, map(int, found.groups()), strict=True))
    if is_number(given):
        parts = {"seconds": given}
    if given is None:
        return None
    key, instead = f"{PREFIX}max_time", f"{PREFIX}max_time=00:12:00:00, or {PREFIX}max_time={{hours:12}}"
    fits = parts is not None and all(name in UNITS and is_number(count) for name, count in parts.items())
    require(fits, key, given, "it is days:hours:minutes:seconds, with two digits each, or a mapping of these", instead)
    seconds = sum(UNITS[str(name)] * float(str(count)) for name, count in (parts or {}).items())
    require(0 < seconds < math.inf, key, given, "it must be more than none", instead)
    return seconds


LIMITS = ("limit_train_batches", "limit_val_batches", "limit_test_batches")

DEFAULTS: dict[str, Any] = {
    "limit_train_batches": 1.0,
    "limit_val_batches": 1.0,
    "overfit_batches": 0,
    "val_check_interval": 1.0,
    "check_val_every_n_epoch": 1,
    "gradient_clip_algorithm": "norm",
}
"""Those that results depend on, as they are where nobody sets them: a checkpoint names the others alone."""


def what_matters(trainer: Trainer) -> dict[str, Any]:
    """By the keys of the command line, what results depend on and is not as by default."""
    own = {field.name: getattr(trainer, field.name) for field in fields(trainer)}
    return {PREFIX + name: own[name] for name, usual in DEFAULTS.items() if own[name] != usual}
