"""Arguments of Lightning's Trainer, for both engines."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from lockstep.base.constraints import AT_LEAST_0, Constraint, NonNegativeInt, PositiveInt, Rules, Share

if TYPE_CHECKING:
    from lockstep.plan.plan import Plan


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
    val_check_interval: Annotated[
        Share,
        Constraint(lambda interval: interval > 0, "it must be more than 0", "100, or 0.25 for four times an epoch"),
    ]
    check_val_every_n_epoch: PositiveInt | None
    gradient_clip_algorithm: Literal["norm", "value"]
    deterministic: Literal[True, False, "warn"] | None
    benchmark: bool | None
    detect_anomaly: bool
    enable_progress_bar: bool | None
    enable_model_summary: bool
    reload_dataloaders_every_n_epochs: NonNegativeInt = 0

    def rules(self, plan: "Plan") -> Rules:
        for stage, batches in plan.steps.split_batches.items():
            key = f"trainer.limit_{stage}_batches"
            runs = getattr(plan, stage) if stage != "val" else self.limit_val_batches != 0
            fits = not runs or (batches == 0 and stage != "train") or self.limit(stage, batches or 1) > 0
            hint = f"{key}=1, or " + (f"{stage}=false" if stage != "val" else "0 for no validation")
            yield fits, key, f"it leaves none of {batches or 'an unknown number of'} batches", hint
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
        """Return the options with `overfit_batches` and `fast_dev_run` as limits."""
        changed: dict[str, Any] = {}
        if batches := int(self.fast_dev_run):
            changed |= {"limit_test_batches": batches, "val_check_interval": 1.0, "check_val_every_n_epoch": 1}
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
