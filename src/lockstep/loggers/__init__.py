"""Where curves go: every logger of a plan, called alike by both engines. Rank 0 writes.

`tensorboard` and `csv_table` need no Lightning; `lightning_adapter` is for Lightning's loggers, Trainer and modules.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lockstep.loggers.tensorboard import HyperParameter, TensorBoardWriter, folder_of
from lockstep.plan import Plan
from lockstep.schemas.target import CSV, TensorBoard

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger as LightningLogger


__all__ = ["CSV", "Loggers", "TensorBoard", "create"]


class Loggers:
    """All loggers of a run; none above rank 0. As a context manager, it saves and ends them if the run fails."""

    def __init__(self, plan: Plan, rank: int, loggers: list[Any]) -> None:
        self.plan, self.rank, self.loggers = plan, rank, loggers

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """Add a point to each curve, at an optimizer step."""
        for logger in self.loggers:
            logger.log_metrics({**values}, step)

    @property
    def board(self) -> TensorBoardWriter | None:
        """Return the logger that also takes texts, images, histograms and graphs; None above rank 0."""
        return next((logger for logger in self.loggers if isinstance(logger, TensorBoardWriter)), None)

    def flush(self) -> None:
        """Write what has been logged to the disk, before a checkpoint that counts it."""
        for logger in self.loggers:
            logger.save()

    def close(self) -> None:
        """End the run successfully."""
        for logger in self.loggers:
            _finalize(logger, "success")

    @cached_property
    def lightning(self) -> "list[LightningLogger]":
        """Return the loggers for a Trainer or a LightningModule, on every rank."""
        from lockstep.loggers.lightning_adapter import trainer_loggers

        return trainer_loggers(self)

    def __enter__(self) -> "Loggers":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for logger in self.loggers if error is not None else ():
            with suppress(Exception):  # the first error is the one to show
                logger.save()
                _finalize(logger, "failed")


def create(plan: Plan, rank: int, steps: int, hparams: Mapping[str, HyperParameter]) -> Loggers:
    """Create the loggers of a plan whose training begins after `steps` steps; later points of curves are dropped."""
    loggers: list[Any] = []
    for choice in plan.logger if rank == 0 else ():
        if isinstance(choice.options, TensorBoard):
            loggers.append(TensorBoardWriter(folder_of(plan), hparams, steps if plan.resume else None))
        elif isinstance(choice.options, CSV):
            from lockstep.loggers.csv_table import CSVWriter

            loggers.append(CSVWriter(plan, steps))
        else:
            from lockstep.loggers.lightning_adapter import create_logger  # with Lightning

            loggers.append(create_logger(choice, plan, steps))
            loggers[-1].log_hyperparams({**hparams})
    return Loggers(plan, rank, loggers)


def _finalize(logger: Any, status: str) -> None:
    logger.finalize(status)
    if type(logger).__name__ == "WandbLogger":  # its `finalize` leaves the run and its process for the next stage
        logger.experiment.finish(exit_code=int(status == "failed"))
