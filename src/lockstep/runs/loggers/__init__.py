"""Where curves go: every logger of a plan is one of Lightning's, and rank 0 writes."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.utilities import rank_zero_only

from lockstep.plan.plan import Plan
from lockstep.plan.run_label import FOLDER, HyperParameter, folder_of
from lockstep.plan.schemas.target import CSV, TensorBoard
from lockstep.runs.loggers.writers import CSVWriter, TensorBoardWriter

__all__ = ["CSV", "Loggers", "TensorBoard", "create"]


class Loggers:
    """All loggers of a run. As a context manager, it saves and ends them if the run fails."""

    def __init__(self, loggers: list[Any]) -> None:
        self.loggers = loggers

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """Add a point to each curve, at an optimizer step."""
        for logger in self.loggers:
            logger.log_metrics({**values}, step)

    @property
    def board(self) -> TensorBoardWriter | None:
        """Return the logger that also takes texts, images and histograms; None above rank 0."""
        return next((logger for logger in self.loggers if isinstance(logger, TensorBoardWriter)), None)

    def flush(self) -> None:
        """Write what has been logged to the disk, before a checkpoint that counts it."""
        for logger in self.loggers:
            logger.save()

    def close(self) -> None:
        """End the run successfully."""
        for logger in self.loggers:
            _close(logger, "success")

    def __enter__(self) -> "Loggers":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for logger in self.loggers if error is not None else ():
            with suppress(Exception):  # the first error is the one to show
                logger.save()
                _close(logger, "failed")


def create(plan: Plan, rank: int, steps: int, hparams: Mapping[str, HyperParameter]) -> Loggers:
    """Create the loggers of a plan whose training begins after `steps` steps; later points of curves are dropped.

    Above rank 0 they are such that write nothing.
    """
    rank_zero_only.rank = rank  # type: ignore[attr-defined]  # the fork server has imported Lightning before any rank
    loggers: list[Any] = []
    for choice in plan.logger:
        is_board = isinstance(choice.options, TensorBoard)
        if rank > 0:
            loggers.append(TensorBoardLogger(plan.run_dir, FOLDER, "") if is_board else DummyLogger())
        elif is_board:
            loggers.append(TensorBoardWriter(folder_of(plan), hparams, steps if plan.resume else None))
        elif isinstance(choice.options, CSV):
            loggers.append(CSVWriter(plan, steps))
        else:
            from lockstep.runs.loggers.lightning_adapter import create_logger  # few runs have another

            loggers.append(create_logger(choice, plan, steps))
            loggers[-1].log_hyperparams({**hparams})
    return Loggers(loggers)


def _close(logger: Any, status: str) -> None:
    if isinstance(logger, TensorBoardWriter | CSVWriter):
        logger.close(status)
    else:
        logger.finalize(status)
    if type(logger).__name__ == "WandbLogger":  # its `finalize` leaves the run and its process for the next stage
        logger.experiment.finish(exit_code=int(status == "failed"))
