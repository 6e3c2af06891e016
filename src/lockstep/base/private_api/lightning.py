"""Private names of Lightning, for the fast epoch loop and around Lightning's handler of SIGTERM.

With a version that is not tested, Lightning's own loop trains, and computes the same numbers.
"""

from collections.abc import Callable
from functools import partial
from traceback import walk_tb
from typing import Any

import lightning.pytorch as pl

try:
    from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop as TrainingEpochLoop
except ImportError:  # in a version that is not tested
    TrainingEpochLoop = None  # type: ignore[assignment, misc]

__all__ = ["TrainingEpochLoop"]

TESTED = ("2.6.6",)
"""The versions with which tests/test_engine_loop.py compared the fast loop with Lightning's own."""

ENDS_DATA = ("lightning.pytorch.loops", "lightning.pytorch.utilities.combined_loader")
"""The modules that raise StopIteration at the end of data, or after on_train_batch_start has returned -1."""

BATCHES_THAT_STEPPED = "_batches_that_stepped"
"""In a checkpoint: the step that Lightning's own logging counts. A version without it counts from 0."""


def skips_backward(loop: TrainingEpochLoop) -> bool:
    """Whether stochastic weight averaging has turned the backward pass off."""
    return loop.automatic_optimization._skip_backward


def disable_signal_handlers(trainer: pl.Trainer) -> None:
    """Keep Lightning from setting signal handlers: that of SIGTERM ends training without a checkpoint."""
    connector = getattr(trainer, "_signal_connector", None)
    if connector is not None:
        connector.register_signal_handlers = lambda: None


def disable_sigterm_broadcast(loop: Any) -> None:
    """Keep Lightning from asking rank 0 before every batch whether it received SIGTERM: a collective a step."""
    loop._broadcast_sigterm_tensor = lambda: None


def forbid_stop_iteration(trainer: pl.Trainer) -> None:
    """Raise an error if a step or a hook raises StopIteration: Lightning's loops would take it for the end of data."""

    def checked(method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except StopIteration as error:
            *_, (frame, _) = walk_tb(error.__traceback__)
            if frame.f_globals["__name__"].startswith(ENDS_DATA):
                raise
            raise RuntimeError("StopIteration, raised in a step or a hook, would end the epoch") from error

    fit_loop, epoch_loop = trainer.fit_loop, trainer.fit_loop.epoch_loop
    methods: dict[Any, tuple[str, ...]] = {fit_loop: ("on_advance_start", "advance", "on_advance_end")}
    methods |= {epoch_loop: ("advance", "on_advance_end")}
    methods |= dict.fromkeys((epoch_loop.val_loop, trainer.test_loop), ("_evaluation_step",))
    for loop, names in methods.items():
        for name in names:
            setattr(loop, name, partial(checked, getattr(loop, name)))


def end_restart(loop: Any) -> None:
    """Clear the `restarting` flag of a loop and its children; a fit loop with max_steps overrides the setter."""
    base = next(kind for kind in reversed(type(loop).__mro__) if "restarting" in vars(kind))
    vars(base)["restarting"].fset(loop, False)
