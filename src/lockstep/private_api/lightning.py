"""Private names of Lightning, for the fast epoch loop and around Lightning's handler of SIGTERM.

Where one is gone, or the version is not a tested one, `fast_loop_obstacle` says so, and Lightning's own loop trains to
the same numbers.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import lightning
import lightning.pytorch as pl

try:
    from lightning.pytorch.loops.fetchers import _DataFetcher as DataFetcher
    from lightning.pytorch.loops.fetchers import _PrefetchDataFetcher as PrefetchDataFetcher
    from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop as TrainingEpochLoop
    from lightning.pytorch.loops.utilities import _block_parallel_sync_behavior as block_gradient_sync
    from lightning.pytorch.utilities.model_helpers import is_overridden as is_overridden
    from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature as is_param_in_hook_signature
except ImportError as error:
    IMPORT_ERROR: str | None = str(error)
else:
    IMPORT_ERROR = None

__all__ = ["DataFetcher", "PrefetchDataFetcher", "TrainingEpochLoop", "block_gradient_sync"]

TESTED = "2.6."
"""How the versions begin with which the fast loop is tested."""

BATCHES_THAT_STEPPED = "_batches_that_stepped"
"""In a checkpoint: the step that Lightning's own logging counts. A version that does not know it counts from 0."""

TOGGLED = "_param_requires_grad_state"
"""Of a module: what its `toggle_optimizer` has switched. Where it is gone, virtual ranks would share the switches."""

OF_LOOP = ("_should_accumulate", BATCHES_THAT_STEPPED, "_num_ready_batches_reached", "_skip_next_val")


def fast_loop_obstacle(trainer: pl.Trainer) -> str | None:
    """Why the fast loop cannot run here; None: it can."""
    if not lightning.__version__.startswith(TESTED):
        return f"Lightning {lightning.__version__} is not tested"
    loop = trainer.fit_loop.epoch_loop
    missing = [name for name in OF_LOOP if not hasattr(loop, name)]
    if not hasattr(loop.automatic_optimization, "_skip_backward"):
        missing.append("automatic_optimization._skip_backward")
    if IMPORT_ERROR or missing:
        return f"Lightning {lightning.__version__} differs: {IMPORT_ERROR or 'no ' + missing[0]}"
    return None


def disable_signal_handlers(trainer: pl.Trainer) -> None:
    """Let Lightning set no signal handlers: that of SIGTERM broadcasts, to lost peers too, and ends training without a
    checkpoint. A version without this method sets them.
    """
    connector = getattr(trainer, "_signal_connector", None)
    if connector is not None:
        connector.register_signal_handlers = lambda: None


def end_restart(loop: Any) -> None:
    """Let a loop, and those within it, begin anew. A fit loop with max_steps would not let its own setter do so."""
    base = next(kind for kind in reversed(type(loop).__mro__) if "restarting" in vars(kind))
    vars(base)["restarting"].fset(loop, False)


def summary(module: pl.LightningModule) -> str:
    """A table of its parts and their sizes; without those of an example, whose forward pass may draw random numbers."""
    from lightning.pytorch.utilities.model_summary.model_summary import ModelSummary

    example, module.example_input_array = module.example_input_array, None
    try:
        return str(ModelSummary(module, max_depth=1))
    finally:
        module.example_input_array = example


def disable_sigterm_broadcast(loop: "TrainingEpochLoop") -> None:
    """Before every batch Lightning asks rank 0 whether it has caught a SIGTERM: a collective a step, which also
    swallows the error of a lost peer. It does not hear of SIGTERM here, so it need not ask. A version without this
    method does not ask.
    """
    loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]


def skips_backward(loop: "TrainingEpochLoop") -> bool:
    """Whether stochastic weight averaging has turned the backward pass off."""
    return loop.automatic_optimization._skip_backward


def names_read(steps: Callable[[], int], trainer: Any) -> dict[str, Any]:
    """Return the private attributes of a Trainer that LearningRateMonitor reads, for a stand-in of a Trainer.

    Args:
        steps: batches that have stepped an optimizer so far.
        trainer: it has `log_every_n_steps` and `should_stop`.
    """

    class EpochLoop:
        @property
        def _batches_that_stepped(self) -> int:
            return steps()

    class Connector:
        @property
        def should_update_logs(self) -> bool:
            """Asked before a step: whether it is one of those that are logged."""
            return (steps() + 1) % trainer.log_every_n_steps == 0 or bool(trainer.should_stop)

    return {"fit_loop": SimpleNamespace(epoch_loop=EpochLoop()), "_logger_connector": Connector()}
