"""Arguments of Lightning's Trainer, for both engines."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from lockstep.batch_math import batch_count
from lockstep.config_error import is_number, require
from lockstep.constraints import AT_LEAST_0, Constraint, PositiveInt, Rules, Share
from lockstep.schemas.data import Loaders

if TYPE_CHECKING:
    from lockstep.plan import Plan

PREFIX = "trainer."
UNITS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}


def _seconds(duration: object) -> float | None:
    """Return the seconds of DD:HH:MM:SS, of a mapping like {hours: 12}, or of a number; None if it is none of these."""
    if isinstance(duration, str) and (match := re.fullmatch(r"(\d+):(\d\d):(\d\d):(\d\d)", duration.strip())):
        duration = dict(zip(UNITS, map(int, match.groups()), strict=True))
    if is_number(duration):
        duration = {"seconds": duration}
    if not isinstance(duration, Mapping) or not all(unit in UNITS and is_number(duration[unit]) for unit in duration):
        return None
    return float(sum(UNITS[unit] * count for unit, count in duration.items()))


Duration = Annotated[
    Any,
    Constraint(
        lambda value: value is None or 0 < (_seconds(value) or 0) < 1e300,
        "it is days:hours:minutes:seconds with two digits each, or a mapping of these, above 0",
        "00:12:00:00, or {hours:12}",
    ),
]


@dataclass(frozen=True)
class Trainer:
    """Each field means the same as in Lightning. limit_*: a number of global batches, or a share of them."""

    limit_train_batches: Share
    limit_val_batches: Share
    limit_test_batches: Share
    overfit_batches: Share
    fast_dev_run: Annotated[bool | int, AT_LEAST_0]
    max_steps: Annotated[
        int,
        Constraint(lambda steps: steps >= 1 or steps == -1, "it must be 1 or more, or -1 for no limit", "1000"),
    ]
    max_time: Duration
    val_check_interval: Annotated[
        Share,
        Constraint(lambda interval: interval > 0, "it must be more than 0", "100, or 0.25 for four times an epoch"),
    ]
    check_val_every_n_epoch: PositiveInt
    num_sanity_val_steps: Annotated[
        int, Constraint(lambda steps: steps >= -1, "it must be 0 or more, or -1 for all batches", "2")
    ]
    gradient_clip_algorithm: Literal["norm", "value"]
    deterministic: Literal[True, False, "warn"] | None
    benchmark: bool | None
    detect_anomaly: bool
    enable_progress_bar: bool | None
    enable_model_summary: bool
    barebones: bool

    def rules(self, plan: "Plan") -> Rules:
        stages = [("val", plan.data.val_size, False), ("test", getattr(plan.data, "test_size", 0), False)]
        for stage, samples, drop_last in [("train", plan.data.train_samples, plan.drop_last), *stages]:
            key, batches = f"limit_{stage}_batches", batch_count(samples, plan.batch_size, drop_last)
            if stage == "train" and isinstance(plan.data, Loaders) and not plan.data.regular:
                batches = plan.data.train_batches
            runs = getattr(plan, stage) if stage != "val" else getattr(self, key) != 0
            fits = not runs or batches == 0 or self.limit(stage, batches) > 0
            hint = f"{PREFIX}{key}=1, or " + (f"{stage}=false" if stage != "val" else "0 for no validation")
            yield fits, PREFIX + key, f"it leaves none of {batches} batches", hint
        fits, hint = self.max_time is None or plan.engine.name != "both", f"{PREFIX}max_steps=1000, or one engine"
        yield fits, f"{PREFIX}max_time", "two runs would not end after the same step", hint
        if self.barebones:
            yield from self._barebones_rules(plan)
        key, interval, batches = f"{PREFIX}val_check_interval", self.val_check_interval, plan.steps.epoch_batches
        if plan.train and self.limit_val_batches != 0:
            fits = batches > 0 or isinstance(interval, int) or interval == 1
            yield fits, key, "the length of an epoch is unknown", f"{key}=100, or {key}=1.0"
            fits = batches == 0 or isinstance(interval, float) or interval <= batches
            yield fits, key, f"an epoch has {batches} batches", f"{key}={batches}, or fewer"

    def _barebones_rules(self, plan: "Plan") -> Rules:
        """Yield the rule of a run without anything that only watches it, as in Lightning."""
        names = (
            "fast_dev_run",
            "num_sanity_val_steps",
            "detect_anomaly",
            "enable_progress_bar",
            "enable_model_summary",
        )
        options: dict[str, object] = {PREFIX + name: getattr(self, name) for name in names}
        options |= {"model_summary": plan.model_summary, "resume": plan.resume}
        options["checkpoint.every_n_steps"] = plan.checkpoint.every_n_steps
        if plan.epoch_metrics is None:  # it saves no checkpoints, and self.log stores nothing
            options["checkpoint.monitor"] = plan.checkpoint.monitor
            options |= {f"{callback.key}.monitor": callback.call.get("monitor") for callback in plan.callbacks}
        enabled = [key for key, value in options.items() if value]
        hint = f"{PREFIX}barebones=false, or leave the other out"
        yield not enabled, f"{PREFIX}barebones", f"it disables {', '.join(enabled)}", hint

    def limit(self, stage: str, batches: int) -> int:
        """Return how many of a stage's batches are used."""
        limit = getattr(self, f"limit_{stage}_batches")
        return min(limit, batches) if isinstance(limit, int) else int(limit * batches)

    def limit_samples(self, stage: str, samples: int, batch_size: int, drop_last: bool = False) -> int:
        """Return how many of a split's samples are used: those of the first batches."""
        return min(samples, self.limit(stage, batch_count(samples, batch_size, drop_last)) * batch_size)

    def resolved(self) -> "Trainer":
        """Return the options with `overfit_batches` and `fast_dev_run` as limits, and `max_time` in seconds."""
        trainer = replace(self, max_time=_seconds(self.max_time))
        if self.barebones and self.enable_progress_bar is None:
            trainer = replace(trainer, enable_progress_bar=False)
        if batches := self.overfit_batches:
            for name in ("limit_train_batches", "limit_val_batches"):
                limit, reason = getattr(self, name), f"{PREFIX}overfit_batches={batches} limits it"
                fits = limit == batches or (isinstance(limit, float) and limit == 1.0)
                require(fits, PREFIX + name, limit, reason, "one of the two")
            trainer = replace(trainer, limit_train_batches=batches, limit_val_batches=batches)
        if batches := int(self.fast_dev_run):
            trainer = replace(trainer, val_check_interval=1.0, check_val_every_n_epoch=1, num_sanity_val_steps=0)
            trainer = replace(trainer, limit_train_batches=batches, limit_val_batches=batches)
            trainer = replace(trainer, limit_test_batches=batches)
        return trainer

    @property
    def sanity_batches(self) -> int | None:
        """Return the batches of each validation loader to try before training; None for all."""
        return None if self.num_sanity_val_steps == -1 else self.num_sanity_val_steps

    def training_options(self) -> dict[str, Any]:
        """Return by key the options that results depend on, if they differ from their defaults."""
        options = {name: getattr(self, name) for name in DEFAULTS}
        return {PREFIX + name: value for name, value in options.items() if value != DEFAULTS[name]}


DEFAULTS: dict[str, Any] = {
    "limit_train_batches": 1.0,
    "limit_val_batches": 1.0,
    "overfit_batches": 0,
    "val_check_interval": 1.0,
    "check_val_every_n_epoch": 1,
    "gradient_clip_algorithm": "norm",
}
"""Options that results depend on. Checkpoints name those that differ."""
