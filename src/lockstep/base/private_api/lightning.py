"""Private names of Lightning, for the fast epoch loop and around Lightning's handler of SIGTERM.

With a version that is not tested, Lightning's own loop trains, and computes the same numbers.
"""

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
from torch import nn

try:
    from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop as TrainingEpochLoop
except ImportError:  # in a version that is not tested
    TrainingEpochLoop = None  # type: ignore[assignment, misc]

__all__ = ["TrainingEpochLoop"]

TESTED = ("2.6.6",)
"""The versions with which tests/test_own_loop.py compared the fast loop with Lightning's own."""

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


def end_restart(loop: Any) -> None:
    """Clear the `restarting` flag of a loop and its children; a fit loop with max_steps overrides the setter."""
    base = next(kind for kind in reversed(type(loop).__mro__) if "restarting" in vars(kind))
    vars(base)["restarting"].fset(loop, False)


def layers_table(net: nn.Module, forward: Callable[[], object] | None) -> str:
    """Return a table of all layers of any net; `forward` calls it, for shapes and FLOPs."""
    from lightning.pytorch.utilities.model_summary.model_summary import ModelSummary

    class Summarized(pl.LightningModule):
        def forward(self) -> object:
            return forward and forward()

    module = Summarized()
    module.net = net
    module.example_input_array = None if forward is None else ()
    return str(ModelSummary(module, max_depth=-1))
