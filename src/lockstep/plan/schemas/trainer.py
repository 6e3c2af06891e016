"""Arguments of Lightning's Trainer, for both engines."""

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal

from lockstep.base.constraints import AT_LEAST_0, Constraint, NonNegativeInt, PositiveInt, Rules, Share

if TYPE_CHECKING:
    from lockstep.plan.plan import Plan

DISABLED_BY_BAREBONES = (
    *("trainer.fast_dev_run", "trainer.num_sanity_val_steps", "trainer.detect_anomaly", "trainer.enable_progress_bar"),
    *("trainer.enable_model_summary", "model_summary", "resume", "checkpoint.every_n_steps"),
)


def _seconds(duration: Any) -> float | None:
    """Return the seconds of DD:HH:MM:SS, or of a mapping like {hours: 12}; None if it is neither."""
    if isinstance(duration, str) and (match := re.fullmatch(r"(\d+):(\d\d):(\d\d):(\d\d)", duration.strip())):
        duration = dict(zip(("days", "hours", "minutes", "seconds"), map(int, match.groups()), strict=True))
    try:
        return timedelta(**duration).total_seconds()
    except (TypeError, ValueError, OverflowError):
        return None


Duration = Annotated[
    Any,
    Constraint(
        lambda value: value is None or (_seconds(value) or 0) > 0,
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
        int, Constraint(lambda steps: steps >= 1 or steps == -1, "it must be 1 or more, or -1 for no limit", "1000")
    ]
    max_time: Duration
    val_check_interval: Annotated[
        Share,
        Constraint(lambda interval: interval > 0, "it must be more than 0", "100, or 0.25 for four times an epoch"),
    ]
    check_val_every_n_epoch: PositiveInt | None
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
    reload_dataloaders_every_n_epochs: NonNegativeInt = 0

    def rules(self, plan: "Plan") -> Rules:
        for stage, batches in plan.steps.split_batches.items():
            key = f"trainer.limit_{stage}_batches"
            runs = getattr(plan, stage) if stage != "val" else self.limit_val_batches != 0
            fits = not runs or (batches == 0 and stage != "train") or self.limit(stage, batches or 1) > 0
            hint = f"{key}=1, or " + (f"{stage}=false" if stage != "val" else "0 for no validation")
            yield fits, key, f"it leaves none of {batches or 'an unknown number of'} batches", hint
        enabled = [key for key in DISABLED_BY_BAREBONES if self.barebones and attrgetter(key)(plan)]
        hint = "trainer.barebones=false, or leave the other out"
        yield not enabled, "trainer.barebones", f"it disables {', '.join(enabled)}", hint
        key, interval, batches = "trainer.val_check_interval", self.val_check_interval, plan.steps.epoch_batches
        if plan.train and self.limit_val_batches != 0 and self.check_val_every_n_epoch is None:
            reason = f"then {key} counts the batches of all epochs, whose length has to be known"
            fits = batches > 0 and isinstance(interval, int)
            yield fits, "trainer.check_val_every_n_epoch", reason, f"{key}=100, or trainer.check_val_every_n_epoch=1"
        elif plan.train and self.limit_val_batches != 0:
            fits = batches > 0 or isinstance(interval, int) or interval == 1
            yield fits, key, "the length of an epoch is unknown", f"{key}=100, or {key}=1.0"
            fits = batches == 0 or isinstance(interval, float) or interval <= batches
            yield fits, key, f"an epoch has {batches} batches", f"{key}={batches}, or fewer"

    def limit(self, stage: str, batches: int) -> int:
        limit = getattr(self, f"limit_{stage}_batches")
        return min(limit, batches) if isinstance(limit, int) else int(limit * batches)

    def resolved(self) -> "Trainer":
        """Return the options with `overfit_batches` and `fast_dev_run` as limits, and `max_time` in seconds."""
        changed: dict[str, Any] = {"max_time": _seconds(self.max_time)}
        if self.barebones and self.enable_progress_bar is None:
            changed["enable_progress_bar"] = False
        if batches := int(self.fast_dev_run):
            changed |= {"limit_test_batches": batches, "num_sanity_val_steps": 0}
            changed |= {"val_check_interval": 1.0, "check_val_every_n_epoch": 1}
        if limit := batches or self.overfit_batches:
            changed |= {"limit_train_batches": limit, "limit_val_batches": limit}
        return replace(self, **changed)


DEFAULTS: dict[str, Any] = {
    **{"trainer.limit_train_batches": 1.0, "trainer.limit_val_batches": 1.0, "trainer.overfit_batches": 0},
    **{"trainer.val_check_interval": 1.0, "trainer.check_val_every_n_epoch": 1},
    "trainer.reload_dataloaders_every_n_epochs": 0,
    "trainer.gradient_clip_algorithm": "norm",
}
"""Options that results depend on. Checkpoints name those that differ."""
