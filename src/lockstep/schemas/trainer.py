"""Arguments of Lightning's Trainer by their own names: what they mean here, for both engines."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from lockstep.batch_math import batch_count
from lockstep.config_error import is_number, require
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
            _require_share(name, f"{PREFIX}{name}=10, say, or {PREFIX}{name}=0.5 for a half", getattr(self, name))
        bounded = self.max_steps >= 1 or self.max_steps == -1
        self._require("max_steps", bounded, "1 or more, or -1 for no bound", "1000, say")
        seconds_of(self.max_time)
        hint = f"1, or {PREFIX}limit_val_batches=0 for none"
        self._require("check_val_every_n_epoch", self.check_val_every_n_epoch >= 1, "1 or more", hint)
        self._require("num_sanity_val_steps", self.num_sanity_val_steps >= -1, "0 or more, or -1 for all batches", "2")
        if self.barebones:
            from lockstep.schemas.barebones import require_bare

            require_bare(self)
        key = f"{PREFIX}val_check_interval"
        hint = f"{key}=100, say, or {key}=0.25 for four times an epoch"
        require(self.val_check_interval > 0, key, self.val_check_interval, "it must be more than 0", hint)
        _require_share("val_check_interval", hint, self.val_check_interval)
        self._require("fast_dev_run", self.fast_dev_run >= 0, "0 or more batches, true or false", "true")
        key, way = f"{PREFIX}deterministic", self.deterministic
        fits = way is None or isinstance(way, bool) or way == "warn"
        require(fits, key, way, "it is true, false, warn or null", f"{key}=true")

    def _require(self, name: str, fits: bool, bounds: str, hint: str) -> None:
        key = PREFIX + name
        require(fits, key, getattr(self, name), f"it must be {bounds}", f"{key}={hint}")

    def check(self, plan: "Plan") -> None:
        """Refuse what leaves nothing to train or to test on, and a way to clip where nothing is clipped."""
        if plan.train:
            self.limited("train", plan.data.train_samples, plan.batch_size, plan.drop_last)
        self.limited("val", plan.data.val_size, plan.batch_size)
        if plan.test and (size := getattr(plan.data, "test_size", None)):
            self.limited("test", size, plan.batch_size)
        timed = self.max_time is None or plan.engine.name != "both"
        reason, hint = "no clock ends two runs after the same step", f"{PREFIX}max_steps=1000, say, or one engine"
        require(timed, f"{PREFIX}max_time", self.max_time, reason, hint)
        summarized, reason = (
            not self.enable_model_summary or plan.model.lightning,
            "the summary is of a LightningModule",
        )
        hint = "model_summary=true, which is of any net"
        require(summarized, f"{PREFIX}enable_model_summary", True, reason, hint)
        if self.barebones:
            from lockstep.schemas.barebones import require_nothing_saved

            require_nothing_saved(plan)
        self._check_validation(plan)
        way = self.gradient_clip_algorithm
        clips, reason = (
            way == "norm" or plan.gradient_clip_val is not None,
            "without gradient_clip_val nothing is clipped",
        )
        require(clips, f"{PREFIX}gradient_clip_algorithm", way, reason, "gradient_clip_val=0.5, say, beside it")

    def _check_validation(self, plan: "Plan") -> None:
        """Refuse validations at other places than an epoch has, and a schedule that waits for one after each epoch."""
        key, every, batches = f"{PREFIX}val_check_interval", self.val_check_interval, plan.steps.epoch_batches
        if plan.train and self.limit_val_batches != 0:
            known = batches > 0 or isinstance(every, int) or every == 1
            require(known, key, every, "nobody knows how long an epoch is", f"{key}=100, say, or {key}=1.0")
            fits = batches == 0 or isinstance(every, float) or every <= batches
            require(fits, key, every, f"an epoch has {batches} batches", f"{key}={batches}, or fewer")
        key, epochs, schedule = f"{PREFIX}check_val_every_n_epoch", self.check_val_every_n_epoch, plan.scheduler
        if epochs > 1 and isinstance(schedule, OwnScheduler) and schedule.plateau:
            metric = schedule.watched(plan)
            reason = f"the schedule steps by {metric} each epoch"
            require(not metric.startswith("val/"), key, epochs, reason, f"{key}=1, or scheduler._monitor_=train/loss")

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
        some = kept > 0 or batches == 0 or (stage == "val" and limit == 0)
        hint = f"{PREFIX}{key}=1" + (f", or {stage}=false" if stage != "val" else ", or 0 for no validation")
        require(some, PREFIX + key, limit, f"of {batches} batches that is none", hint)
        return kept

    def resolved(self) -> "Trainer":
        """With the limits that `overfit_batches` and `fast_dev_run` come to, and a time in seconds."""
        own = replace(self, max_time=seconds_of(self.max_time))
        if self.barebones:
            own = replace(own, enable_progress_bar=False)
        if self.overfit_batches:
            for name in ("limit_train_batches", "limit_val_batches"):
                limit, reason = getattr(self, name), f"{PREFIX}overfit_batches={self.overfit_batches} says how many"
                usual = isinstance(limit, float) and limit == 1.0
                require(usual or limit == self.overfit_batches, PREFIX + name, limit, reason, "one of the two")
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


def _require_share(name: str, hint: str, share: float) -> None:
    """Refuse what is neither a number of batches nor a share of them."""
    require(share >= 0, PREFIX + name, share, "it must be 0 or more", hint)
    fits, reason = isinstance(share, int) or share <= 1, "a share is at most 1.0, a number of batches is whole"
    require(fits, PREFIX + name, share, reason, hint)


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
    key, hint = f"{PREFIX}max_time", f"{PREFIX}max_time=00:12:00:00, or {PREFIX}max_time={{hours:12}}"
    fits = parts is not None and all(name in UNITS and is_number(count) for name, count in parts.items())
    require(fits, key, given, "it is days:hours:minutes:seconds, with two digits each, or a mapping of these", hint)
    seconds = sum(UNITS[str(name)] * float(str(count)) for name, count in (parts or {}).items())
    require(0 < seconds < math.inf, key, given, "it must be more than none", hint)
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
