"""What those who watch a run see beside its numbers, decided here and written by its loggers: see docs/monitoring.md.

Both engines call the same methods at the same moments; above rank 0 there is nobody to write.
"""

from lockstep import loggers
from lockstep.loggers import Loggers
from lockstep.monitor.hparams import hparams_of
from lockstep.monitor.layout import layout_of
from lockstep.monitor.texts import texts_of
from lockstep.monitor.work import work_of
from lockstep.plan import Plan

__all__ = ["open_loggers", "work_of"]


def open_loggers(plan: Plan, rank: int, steps: int) -> Loggers:
    """The loggers of a run whose training begins behind so many steps, with all that is known beforehand."""
    opened = loggers.create(plan, rank, steps, hparams_of(plan))
    if (board := opened.board) is not None:
        for name, text in texts_of(plan).items():
            board.log_text(name, text)
        board.log_layout(layout_of(plan))
    return opened
