"""Which checkpoint is the best: by the plan's metric, or by a loss that the module logs."""

from collections.abc import Mapping

from lockstep.checkpoint.saving import CheckpointManager
from lockstep.config_error import config_error
from lockstep.plan import Plan

LOSSES = ("val_loss", "val/loss", "valid_loss", "validation_loss", "train/loss")
"""What best.ckpt is best by where the plan does not say: the first of these that a module logs."""


def update_best(
    plan: Plan, checkpoints: CheckpointManager, results: Mapping[str, float], within: Mapping[str, float] | None
) -> None:
    """Note whether the latest results are the best so far, so that the next checkpoint is kept as the best, too.

    Args:
        within: the values of a validation within an epoch, which alone count there; None at an epoch's end.

    Raises:
        ConfigError: the module does not log what the plan monitors.
    """
    wanted, mode = plan.monitor
    monitor = wanted or next((name for name in LOSSES if name in results), "")
    if within is not None and monitor not in within:
        return
    if wanted and wanted not in results:
        known = ", ".join(sorted(results)) or "none"
        reason = f"{plan.model.name} logs no such value"
        raise config_error("checkpoint.monitor", wanted, reason, f"one of {known}")
    if monitor:
        checkpoints.monitor = monitor, mode
        checkpoints.update_best(results)
    else:
        checkpoints.best_yet = True  # nothing says which is better: the newest
