"""How the rank ended that failed in an attempt, for the ranks of the next, which say so.

Torch's agent tells nobody where it starts the ranks anew, except its log.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOG = "torch.distributed.elastic.multiprocessing.api"
FAILED = "failed (exitcode: %s) local_rank: %s"
"""How the line begins, before its values are put in."""


def attempt(folder: Path, restarts: int) -> Path:
    """Where the ranks of a job leave their notes, after so many restarts."""
    return folder / f"attempt-{restarts}"


def exit_codes(attempt: Path) -> dict[int, int]:
    """By rank; a negative one is a signal."""
    return {int(path.suffix[1:]): int(path.read_text()) for path in attempt.glob("ended.*")}


class ExitCodes(logging.Handler):
    """Leaves them beside the notes of each attempt."""

    def __init__(self, folder: Path) -> None:
        super().__init__(logging.ERROR)
        self.folder, self.failures = folder, 0

    def emit(self, record: logging.LogRecord) -> None:
        if str(record.msg).startswith(FAILED) and isinstance(record.args, tuple):
            code, rank, *_ = record.args
            notes = attempt(self.folder, self.failures)
            notes.mkdir(exist_ok=True)
            (notes / f"ended.{rank}").write_text(str(code))
            self.failures += 1


@contextmanager
def exit_codes_in(folder: Path) -> Iterator[None]:
    """For the job in `folder`."""
    logger, handler = logging.getLogger(LOG), ExitCodes(folder)
    level, propagates = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates
