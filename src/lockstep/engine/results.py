"""The results of a run: values of each stage over all ranks, for the record, metrics.json, loggers and callbacks."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lockstep.base.config_error import ConfigError, config_error
from lockstep.base.messages import all_reduce_sums
from lockstep.engine.log import ExactLog
from lockstep.engine.logged_values import Value
from lockstep.engine.phases import Phases, phases_text
from lockstep.engine.progress import RunProgress
from lockstep.plan.schemas.groups import better
from lockstep.runs.checkpoint.best import BestMetric
from lockstep.runs.checkpoint.content import Progress
from lockstep.runs.loggers import Loggers
from lockstep.runs.record import StepRecorder, run_metadata
from lockstep.runs.record.fingerprint import digest
from lockstep.runs.record.step_lines import Scalar
from lockstep.runs.run_files import Metrics
from lockstep.strategies.parallel.tensor_layout import full_state_dict

LOSSES = ("val_loss", "val/loss", "valid_loss", "validation_loss", "train/loss")
"""What best.ckpt is best by if neither the plan nor the module says: the first of these that a module logs."""
STOPPING = "val/loss"
"""What callbacks=early_stopping looks at; if that is not logged, at the metric of best.ckpt."""
STEP_LOSS = "train/loss_step"


class StepCurve:
    """The curves over optimizer steps: every `log_every_n_steps` the loss and the speed of training.

    totals: this rank's since the last point: of the loss times what it counts, of what it counts, and of samples.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.begin()

    def begin(self) -> None:
        """Begin anew, so that no point has the time between two epochs."""
        self.point_time = time.perf_counter()
        self.totals: tuple[Scalar, float, float] = 0.0, 0.0, 0.0

    def add(self, loss_sum: Scalar, weight: float, samples: int) -> None:
        """Add a batch whose loss times `weight` is `loss_sum`."""
        earlier_loss, earlier_weight, earlier_samples = self.totals
        self.totals = earlier_loss + loss_sum, earlier_weight + weight, earlier_samples + samples

    def point(self) -> dict[str, float]:
        """Return the values since the last point, over all ranks; begin the next one. To be called by every rank."""
        sums = torch.tensor([float(total) for total in self.totals], dtype=torch.float64)
        loss, weight, samples = all_reduce_sums(sums, self.device).tolist()
        speed = samples / (time.perf_counter() - self.point_time)
        self.begin()
        return {**({STEP_LOSS: loss / weight} if weight else {}), "samples_per_second": speed}


class Results:
    """`values`: the latest by name; `epoch_values`: those of the current epoch, for the record.

    validated: whether the current epoch has been validated.
    work: curves of the work of the last complete epoch.
    prints_epochs: whether rank 0 prints a line for each epoch: there is no bar.
    recorder: set when training begins.
    """

    prints_epochs = True
    epoch_start = 0.0

    recorder: StepRecorder

    def __init__(self, module: Any, log: ExactLog, loggers: Loggers, progress: RunProgress, phases: Phases) -> None:
        self.module, self.log, self.loggers, self.progress, self.phases = module, log, loggers, progress, phases
        self.plan = progress.plan
        self.best = BestMetric(self.plan.checkpoint.monitor or "", self.plan.checkpoint.mode)
        self.values: dict[str, float] = {}
        self.epoch_values: dict[str, float] = {}
        self.validated = False
        self.work: dict[str, float] = {}
        self.digest = ""
        self.curve = StepCurve(phases.device)

    def begin_epoch(self) -> None:
        """Start the clocks of an epoch, or of the rest of one that is resumed within."""
        self.phases.begin_epoch()
        self.epoch_start = time.perf_counter()
        self.curve.begin()

    def update_step_metrics(self) -> None:
        """Update the trainer's metrics by what the batch has logged. To be called by every rank.

        An evaluation's values of a batch are this rank's, and callbacks do not monitor them, as in Lightning.
        """
        if self.log.is_fresh:
            trainer = self.module.trainer
            if self.log.stage == "train":
                self.log.sync_steps()
                trainer.callback_metrics.update(as_tensors(self.log.monitored()))
            trainer.logged_metrics.update(as_tensors(self.log.step("logger")))
            trainer.progress_bar_metrics.update(self.log.step("prog_bar"))

    def reduce_stage(self, stage: str) -> None:
        """Reduce the values of a stage, so that its last hooks can read them. To be called by every rank."""
        self.log.enter(stage)  # after on_train_batch_start has ended an epoch within a batch
        self._update_metrics(self.log.epoch(stage))

    def end_stage(self, stage: str) -> None:
        """Add what the last hooks of a stage have logged; record and log its values. To be called by every rank."""
        logged, position = self.log.end_epoch(stage), self.progress.position
        values = {entry.epoch_name: value for entry, value in logged}
        self.values |= values
        if stage != "test":
            self.epoch_values |= values
        to_loggers = self._update_metrics(logged)
        self._check_monitors(stage)
        if stage == "train":
            to_loggers |= self.work
        self.to_loggers(to_loggers, position.begun if stage == "test" else position.epochs)

    def _update_metrics(self, logged: Sequence[tuple[Value, float]]) -> dict[str, float]:
        """Update what callbacks read; return the values for loggers."""
        trainer = self.module.trainer
        monitored = {name: value for entry, value in logged for name in (entry.name, entry.epoch_name)}
        to_loggers = {entry.epoch_name: value for entry, value in logged if entry.logger}
        trainer.callback_metrics.update(as_tensors(monitored))
        trainer.logged_metrics.update(as_tensors(to_loggers))
        trainer.progress_bar_metrics.update({entry.epoch_name: value for entry, value in logged if entry.prog_bar})
        return to_loggers

    def end_validation(self) -> None:
        """Record a validation within an epoch, and whether it is the best so far."""
        position, recorder = self.progress.position, self.recorder
        recorder.flush(position.epochs + 1, position.steps)
        if self.epoch_values:
            recorder.validation(position.epochs + 1, self.epoch_values, position.steps, position.batch)
        self._update_best(self.epoch_values)
        self.epoch_values = {}

    def end_epoch(self) -> None:
        """Record a complete epoch and its validation, and whether it is the best so far."""
        done, monitor, recorder = self.progress.position, self.plan.checkpoint.monitor or "", self.recorder
        self.progress.position = position = Progress(done.epochs + 1, 0, done.steps)
        recorder.end_epoch(position.epochs, position.steps)
        if self.epoch_values:
            recorder.validation(position.epochs, self.epoch_values)
        is_judged = self.validated or not self.progress.has_validation  # by what a validation has measured, if any does
        if is_judged or monitor in self.epoch_values or monitor.startswith("train/"):
            self._update_best(self.values)
        elif self.best.badness is None:
            self.best.is_new = True  # until the first validation the newest is the best
        self.epoch_values, self.validated = {}, False
        if self.prints_epochs and self.progress.context.rank == 0:
            named = "  ".join(f"{name} {value:.4f}" for name, value in sorted(self.values.items()))
            seconds = time.perf_counter() - self.epoch_start
            print(f"epoch {position.epochs}/{self.plan.max_epochs}  {named}  {seconds:.2f} s", flush=True)

    def finish(self) -> Metrics:
        """Return the content of metrics.json, on every rank."""
        plan, position = self.plan, self.progress.position
        if plan.profiler == "simple" and self.progress.context.rank == 0:
            print(f"\n{phases_text(self.phases)}", flush=True)
        seconds, samples = self.phases.seconds, self.phases.samples
        metrics: Metrics = {
            **run_metadata(plan, self.module),
            "parameters": sum(parameter.numel() for parameter in self.module.parameters()),
            "epochs": position.begun,
            "steps": position.steps,
            "train_seconds": seconds,
            "samples_per_second": samples / seconds if seconds and samples else 0.0,
        }
        best = self.best.metrics() if plan.train else {}
        final = {"digest": self.digest or digest(full_state_dict(self.module))}
        return {**metrics, **self.values, **metrics, **best, **final}

    def to_loggers(self, values: Mapping[str, float], epoch: int) -> None:
        """Log values, if there are any, at the current optimizer step."""
        if values:
            if self.loggers.board is not None:
                self.loggers.board.monitor = self._monitor(self.values)
            self.loggers.log_metrics({**values, "epoch": epoch}, self.progress.position.steps)

    def _monitor(self, names: Collection[str]) -> str:
        """Return the metric by which best.ckpt is best, of those that are logged."""
        defaults = (getattr(self.module, "monitor", None), *LOSSES)
        return str(self.plan.checkpoint.monitor or next((each for each in defaults if each in names), ""))

    def _check_monitors(self, stage: str) -> None:
        """Have an EarlyStopping whose default is not logged take best.ckpt's metric; raise if another is not logged."""
        plan, trainer = self.plan.trainer, self.module.trainer
        logged = trainer.callback_metrics
        ends_epoch = plan.val_check_interval == 1.0 and plan.check_val_every_n_epoch == 1
        for callback in trainer.early_stopping_callbacks if stage == ("train" if ends_epoch else "val") else ():
            name = self._monitor(logged)
            if callback.monitor == STOPPING and callback.monitor not in logged and name in logged:
                look_at(callback, name)
            elif callback.strict and callback.monitor not in logged:
                keys = (each.key for each in self.plan.callbacks if "EarlyStopping" in each.path)
                raise self._not_logged(f"{next(keys, 'callbacks')}.monitor", callback.monitor, logged)

    def _not_logged(self, key: str, name: str, logged: Collection[str]) -> ConfigError:
        reason = f"{self.plan.model.name} logs no such value"
        return config_error(key, name, reason, f"one of {', '.join(sorted(logged)) or 'none'}")

    def _update_best(self, values: Mapping[str, float]) -> None:
        """Note whether results, of a validation alone within an epoch, are the best: then so is the next checkpoint."""
        name, monitor = self.plan.checkpoint.monitor, self._monitor(self.values)
        if values is not self.values and monitor not in values:
            return
        if name and name not in self.values:
            raise self._not_logged("checkpoint.monitor", name, self.values)
        if monitor:
            self.best.name = monitor
            self.best.update(self.values[monitor], self.progress.position.begun)
            if self.loggers.board is not None and (best := self.best.metrics()):
                self.loggers.board.log_best(float(best["best"]), self.progress.position.steps)
        else:
            self.best.is_new = True  # no value ranks them: the newest is the best


def look_at(callback: Any, name: str) -> None:
    """Have an EarlyStopping look at another metric, with the mode of its name."""
    callback.monitor = name
    if callback.mode != better(name):
        callback.mode = better(name)
        callback.min_delta, callback.best_score = -callback.min_delta, -callback.best_score


def as_tensors(values: Mapping[str, float]) -> dict[str, Tensor]:
    """Return metrics as callbacks expect them."""
    return {name: torch.full((), value, dtype=torch.float64) for name, value in values.items()}
