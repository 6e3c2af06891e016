"""What a run has measured: the values of a stage over all ranks become results, at the ends of epochs."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lockstep.checkpoint.content import Progress
from lockstep.checkpoint.saving import CheckpointManager
from lockstep.config_error import config_error
from lockstep.loggers import Loggers
from lockstep.plan import Plan
from lockstep.record.digest import digest
from lockstep.record.recorder import Recorder
from lockstep.record.run_metadata import run_metadata
from lockstep.run_files import Metrics
from lockstep.session.epoch_timing import EpochTiming
from lockstep.session.progress import RunProgress
from lockstep.session.schedules import require_logged
from lockstep.session.trainee import Trainee
from lockstep.sums.phases import seconds_range

LOSSES = ("val_loss", "val/loss", "valid_loss", "validation_loss", "train/loss")
"""What best.ckpt is best by where the plan does not say: the first of these that a module logs."""


class Results:
    """`values`: the latest by name; `epoch_values`: those of the epoch under way, for the record.

    validated: whether the epoch under way has been validated.
    """

    recorder: Recorder
    checkpoints: CheckpointManager

    def __init__(
        self, plan: Plan, trainee: Trainee, progress: RunProgress, timing: EpochTiming, loggers: Loggers
    ) -> None:
        self.plan, self.net, self.log, self.metrics = plan, trainee.net, trainee.log, trainee.metrics
        self.automatic = trainee.module.automatic_optimization
        self.progress, self.timing, self.loggers = progress, timing, loggers
        self.values: dict[str, float] = {}
        self.epoch_values: dict[str, float] = {}
        self.validated = False
        self.digest = ""

    def begin(self, recorder: Recorder, checkpoints: CheckpointManager) -> None:
        self.recorder, self.checkpoints = recorder, checkpoints

    def end_stage(self, trainer: Any, stage: str) -> None:
        """Make results of the values of an epoch over all ranks, for the trainer's metrics and the loggers.

        Comes behind the module's own hook. To be called by every rank.
        """
        progress = self.progress
        if progress.checking:
            self.log.end_epoch(stage)
            return
        if stage == "train":  # which a stop may have ended before its last batch
            self.timing.stop()
        within = (
            progress.interrupted_epoch if stage == "train" else progress.epoch_goes_on(trainer, trainer.is_last_batch)
        )
        metrics, work = self.metrics.end_stage(stage, progress.position, within, self.timing.work)
        logged = self.log.end_epoch(stage)
        self.values |= {**self.metrics.results, **logged.values}
        if stage != "test":
            self.epoch_values |= {**metrics, **logged.values}
        trainer.callback_metrics.update(as_tensors({**self.metrics.results, **logged.monitored}))
        trainer.logged_metrics.update(as_tensors({**metrics, **logged.logger}))
        trainer.progress_bar_metrics.update({**self.metrics.results, **logged.prog_bar})
        self.to_loggers({**logged.logger, **work}, trainer.current_epoch)
        if stage == "train" and not progress.interrupted_epoch:
            self.require_monitored(trainer, "epoch", trainer.current_epoch + 1)

    def end_validation(self) -> None:
        """Record a validation within an epoch, and whether it is the best so far."""
        position = self.progress.position
        self.recorder.flush(position.epochs + 1, position.steps)
        if self.epoch_values:
            self.recorder.validation(position.epochs + 1, self.epoch_values, position.steps, position.batch)
        update_best(self.plan, self.checkpoints, self.values, self.epoch_values)
        self.epoch_values = {}

    def end_epoch(self) -> None:
        """Record an epoch, all of which is done, its validation too, and whether it is the best so far."""
        done = self.progress.position
        self.progress.position = position = Progress(done.epochs + 1, 0, done.steps)
        self.recorder.end_epoch(position.epochs, position.steps)
        self.metrics.end_epoch(position, self.validated)
        if self.epoch_values:
            self.recorder.validation(position.epochs, self.epoch_values)
        if self.metrics.is_best_measured(position, self.validated, self.epoch_values):
            update_best(self.plan, self.checkpoints, self.values, None)
        self.epoch_values, self.validated = {}, False

    def end_training(self) -> None:
        """End the record. A callback may put other weights into the module now, to be tested."""
        self.recorder.end()
        self.digest = digest(self.plan.strategy.tensors.state_dict(self.net))

    def finish(self) -> Metrics:
        """Return what metrics.json holds, on every rank."""
        plan, position = self.plan, self.progress.position
        seconds, samples = self.timing.seconds, self.timing.samples
        metrics = {
            **run_metadata(plan, self.net),
            "epochs": position.begun,
            "steps": position.steps,
            "train_seconds": seconds,
            "samples_per_second": samples / seconds if seconds and samples else 0.0,
            **seconds_range(self.timing.epoch_seconds),
        }
        logged = {name: value for name, value in self.values.items() if name not in metrics}
        best = self.checkpoints.best_metrics if plan.train else {}
        final = self.digest or digest(plan.strategy.tensors.state_dict(self.net))
        return {**metrics, **logged, **best, **self.metrics.final_metrics(), "digest": final}

    def require_monitored(self, trainer: Any, interval: str, index: int) -> None:
        """Raise if a ReduceLROnPlateau steps now by a value that nothing has logged."""
        if self.automatic and trainer.lr_scheduler_configs:
            schedules = trainer.lr_scheduler_configs
            require_logged(self.plan.model.name, schedules, interval, index, trainer.callback_metrics)

    def to_loggers(self, values: Mapping[str, float], epoch: int) -> None:
        """Log values, if there are any, at the optimizer step that training has reached."""
        if values:
            self.loggers.log_metrics({**values, "epoch": epoch}, self.progress.position.steps)


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


def as_tensors(values: Mapping[str, float]) -> dict[str, Tensor]:
    """Return metrics as callbacks expect them."""
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
