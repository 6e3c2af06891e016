"""The hooks of a module: what follows each of them, in one table.

A callback of Lightning comes before the same hook of the module. What reads the values that a hook logs, or saves what
it has changed, has to come after it.
"""

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl

from lockstep.base.messages import broadcast
from lockstep.engine.evaluation import EvaluationCallback
from lockstep.engine.training import BatchCallback, TrainingCallback
from lockstep.plan.targets.kinds import replace_method


def attach(
    trainer: pl.Trainer, evaluation: EvaluationCallback, batches: BatchCallback, training: TrainingCallback
) -> None:
    """Have the hooks of the module followed by these methods, each in this order and with the hook's arguments."""
    module = training.session.module
    module.trainer = trainer  # as Lightning sets it in fit: a run that has finished is not trained again
    following: dict[str, tuple[Callable[..., None], ...]] = {
        "on_fit_start": (training.restore_optimizers,),
        "on_train_start": (training.state.restore_metrics,),
        "on_train_batch_end": (batches.end, training.save_if_due),
        "on_train_epoch_end": (training.end_stage,),
        "on_fit_end": (training.end_fit,),
        "on_validation_end": (evaluation.end, training.end_validation),
        "on_test_end": (evaluation.end,),
    }
    for stage in ("validation", "test"):
        following[f"on_{stage}_epoch_start"] = (lambda: broadcast(module.buffers()),)  # those that are saved
        following[f"on_{stage}_batch_end"] = (evaluation.end_batch,)
        following[f"on_{stage}_epoch_end"] = (evaluation.end_stage,)
    for name, methods in following.items():
        call_after(module, name, methods)


def call_after(module: pl.LightningModule, name: str, methods: tuple[Callable[..., None], ...]) -> None:
    """Wrap a hook of the module so that `methods` are called after it."""

    def hook(original: Callable[..., Any], *arguments: Any) -> Any:
        returned = original(*arguments)
        for method in methods:
            method(*arguments)
        return returned

    replace_method(module, name, hook)
