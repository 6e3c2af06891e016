"""Where curves go: every logger of a plan, called alike by both engines. Rank 0 writes.

`tensorboard` and `table` need no Lightning; `lightning_adapter` has what a Trainer and a user's module are handed, and
what any Lightning logger is here.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from lockstep import schemas
from lockstep.loggers.logger import HyperParameter, Logger
from lockstep.loggers.tensorboard import TensorBoard, folder_of
from lockstep.plan import Plan

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger as LightningLogger

__all__ = ["HyperParameter", "Logger", "Loggers", "create"]


class Loggers:
    """All loggers of a run. Above rank 0 there are none to write to, and every method may be called.

    Around a run (`with`): if it fails, what was logged is kept, and each logger is told.
    """

    def __init__(self, plan: Plan, rank: int, hparams: Mapping[str, HyperParameter], loggers: list[Logger]) -> None:
        self.plan, self.rank, self.loggers = plan, rank, loggers
        self.hparams = dict(hparams)

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """A point on the curve of each value, at an optimizer step."""
        for logger in self.loggers:
            logger.log_metrics(values, step)

    @property
    def board(self) -> TensorBoard | None:
        """Return the logger that also takes texts, images, histograms and graphs; None above rank 0."""
        return next((logger for logger in self.loggers if isinstance(logger, TensorBoard)), None)

    def flush(self) -> None:
        """What has been logged, onto the disk: a checkpoint is about to say that it is."""
        for logger in self.loggers:
            logger.flush()

    def close(self, results: Mapping[str, float]) -> None:
        """The run is over, with these results."""
        for logger in self.loggers:
            logger.close(self.hparams, results)

    @cached_property
    def lightning(self) -> "list[LightningLogger]":
        """The same loggers for a Trainer or a LightningModule, on every rank."""
        from lockstep.loggers.lightning_adapter import of_rank

        return of_rank(self)

    def __enter__(self) -> "Loggers":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            for logger in self.loggers:
                with suppress(Exception):  # the first error is the one to show
                    logger.fail()


def create(plan: Plan, rank: int, steps: int, hparams: Mapping[str, HyperParameter]) -> Loggers:
    """The loggers of a plan whose training begins behind so many steps: later points are lost and done anew.

    Raises:
        ConfigError: code of the user's own makes something else than a Lightning logger.
    """
    own = [_create(choice, plan, steps, hparams) for choice in plan.logger] if rank == 0 else []
    return Loggers(plan, rank, hparams, own)


def _create(choice: schemas.Logger, plan: Plan, steps: int, hparams: Mapping[str, HyperParameter]) -> Logger:
    match choice:
        case schemas.TensorBoard():
            return TensorBoard(folder_of(plan), hparams, steps if plan.resume else None)
        case schemas.CSV():
            from lockstep.loggers.table import Table

            return Table(plan, steps)
        case _:
            from lockstep.loggers.lightning_adapter import FromLightning  # with Lightning

            return FromLightning(choice, plan, steps, hparams)
