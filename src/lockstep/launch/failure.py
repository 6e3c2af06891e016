"""Find out which rank failed first, and why, and end the command with that reason, printed once.

Each failing rank sends a report, and the command picks the cause.

When one rank dies, its peers' collectives break a moment later. Only the cause is shown: a rank's own error before a
lost peer, an exit without a report (a signal) before a lost peer, and the earliest of equals.
"""

import inspect
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from lockstep.config_error import ConfigError
from lockstep.errors import ExpectedError, NotFinite
from lockstep.launch.private_dir import remove_private_folder
from lockstep.launch.signals import end_command
from lockstep.launch.topology import RankContext, is_rank_zero
from lockstep.targets.frames import MEMORY_HINT, user_traceback

DEBUGGERS = ("bdb", "debugpy", "pydevd", "_pydevd_bundle")
"""Packages that call the program which they debug: pdb's, and those of IDEs."""

EXIT_DELAY = 3.0
"""Delay in seconds before a rank that only lost a peer exits."""

LOST_PEER = (
    *("connection closed by peer", "connection reset", "broken pipe", "connection refused", "socket closed"),
    *("connection closed by remote peer", "ncclremoteerror", "remote process"),
)
"""Parts of gloo's messages, then of nccl's."""


class RankFailed(RuntimeError):
    """A rank ended before its work was done. The message is its traceback, or the signal that ended it.

    rank: None if the fork server failed, on which all ranks depend.
    final: a restart would fail again.
    """

    def __init__(self, rank: int | None, reason: str, final: bool = False) -> None:
        super().__init__(rank, reason, final)
        self.rank, self.reason, self.final = rank, reason, final

    def __str__(self) -> str:
        return self.reason if self.rank is None else f"rank {self.rank} failed: {self.reason}"


@dataclass(frozen=True)
class FailureReport:
    """A failing rank's report to the command. `error`: what the command raises for it; `time`: time.time()."""

    error: ConfigError | RankFailed
    time: float
    lost_peer: bool = False


def format_error(error: BaseException) -> str:
    """Format an error: an expected one without traceback, one of the user's code with the traceback of that code."""
    return str(error) if isinstance(error, ExpectedError | ConfigError) else user_traceback(error)


def failure_report(error: Exception, rank: int) -> FailureReport:
    """Return the report of a rank's error."""
    if isinstance(error, ConfigError):
        return FailureReport(type(error)(str(error)), time.time())
    cause = RankFailed(rank, format_error(error), final=isinstance(error, NotFinite))
    return FailureReport(cause, time.time(), lost_a_peer(error))


def wait_for_first_failure(error: BaseException) -> None:
    """Delay the exit of a rank that only lost a peer, so that the peer's failure comes first."""
    if lost_a_peer(error):
        delay_exit()


def delay_exit() -> None:
    """Wait for EXIT_DELAY, or SIGTERM: an external launcher ends all ranks as soon as one has failed."""
    signal.signal(signal.SIGTERM, end_command)
    time.sleep(EXIT_DELAY)


def lost_a_peer(error: BaseException) -> bool:
    """Whether the error is a collective that broke because another rank went away."""
    from torch.distributed import DistError

    text = str(error).lower()
    return isinstance(error, DistError | RuntimeError) and any(sign in text for sign in LOST_PEER)


def first_failure(reports: Mapping[int, FailureReport], exit_codes: Mapping[int, int]) -> ConfigError | RankFailed:
    """Return the error to raise in the command.

    Args:
        exit_codes: of the ranks that ended too early, before the command killed any (negative: a signal).
    """
    silent = [rank for rank in exit_codes if rank not in reports]
    if silent and all(report.lost_peer for report in reports.values()):
        return RankFailed(silent[0], exit_reason(exit_codes[silent[0]]))
    return min(reports.values(), key=lambda report: (report.lost_peer, report.time)).error


def exit_reason(code: int) -> str:
    """Describe an exit code; a negative one is a signal."""
    if code == 0:
        return "it ended with status 0 before its work was done"
    if code > 0:
        return f"it ended with exit status {code} and no traceback"
    name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
    hint = f" (the system does so when memory runs out: {MEMORY_HINT})" if code == -signal.SIGKILL else ""
    return f"it was ended by {name}{hint}"


def is_debugged() -> bool:
    """Whether the program was started by a debugger, which stops at uncaught errors."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] not in DEBUGGERS:
        frame = frame.f_back
    return frame is not None


def exit_now(status: int) -> NoReturn:
    """Exit a rank of an external launcher without the interpreter's own clean-up, at which gloo's threads may abort.

    Ranks that the command starts exit like that, too, as multiprocessing's children do.
    """
    remove_private_folder()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def print_exit_reason(reason: str, context: RankContext | None) -> None:
    """Print why the command ends, once for all its ranks."""
    print(end="", flush=True)  # a program without streams may have called `run`
    if is_rank_zero(context):
        print(reason, file=sys.stderr, flush=True)
    elif context is not None and context.local_rank == 0:  # of another machine, which may have failed by itself
        print(f"rank {context.rank}: {reason}", file=sys.stderr, flush=True)


def let_rank_zero_print(context: RankContext | None) -> None:
    """Let a rank that prints nothing end after the one that does."""
    if context is not None and context.local_rank > 0:
        delay_exit()
