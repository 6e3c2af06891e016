"""Lightning callbacks of Lockstep; `monitoring_callbacks` are those that each run has."""

from typing import TYPE_CHECKING

from lightning.pytorch import Callback

from lockstep.callbacks.confusion_matrix import ConfusionMatrix
from lockstep.callbacks.fitted_line import FittedLine
from lockstep.callbacks.pictures import Pictures
from lockstep.schemas.target import tensorboard_of

if TYPE_CHECKING:
    from lockstep.session.session import Session

__all__ = ["ConfusionMatrix", "FittedLine", "Pictures", "monitoring_callbacks"]


def monitoring_callbacks(session: "Session") -> list[Callback]:
    """Return the callbacks that show a module's predictions: on every rank, since counts are of all ranks."""
    plan, board, options = session.plan, session.loggers.board, tensorboard_of(session.plan)
    shows = options is not None and options.images and plan.train and session.data.runs("val")
    if not shows and not plan.test:
        return []
    confusion = ConfusionMatrix(plan.run_dir, shows, lambda: session.step.samples > 0)
    if board is None or not shows:
        return [confusion]
    filters, progress = not plan.strategy.sharded, session.progress
    return [confusion, Pictures(board, confusion, lambda: progress.position.steps, filters)]
