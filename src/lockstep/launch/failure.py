"""Which rank failed first, and why: each failing rank sends a report, and the command picks the cause among them.

When one rank dies, its peers' collectives break a moment later. Only the cause is shown: an error of a rank's own
before a lost peer, an exit without a report (a signal) before a lost peer, the earliest of equals.
"""

import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lockstep.config_error import ConfigError
from lockstep.errors import ExpectedError, NotFinite, PeerStopped
from lockstep.launch.signals import exit_by_signal
from lockstep.targets.frames import MEMORY_HINT, user_traceback

EXIT_DELAY = 3.0
"""Seconds that a rank waits whose own end says nothing, so that another's comes first."""

LOST_PEER = (
    *("connection closed by peer", "connection reset", "broken pipe", "connection refused", "socket closed"),
    *("connection closed by remote peer", "ncclremoteerror", "remote process"),
)
"""In gloo's messages, then in nccl's."""


class RankFailed(RuntimeError):
    """A rank ended before its work was done. The message carries its own traceback, or the signal that ended it.

    rank: None where the fork server failed, on which all ranks depend.
    final: a restart would fail again.
    """

    def __init__(self, rank: int | None, reason: str, final: bool = False) -> None:
        super().__init__(rank, reason, final)
        self.rank, self.reason, self.final = rank, reason, final

    def __str__(self) -> str:
        return self.reason if self.rank is None else f"rank {self.rank} failed: {self.reason}"


@dataclass(frozen=True)
class FailureReport:
    """A failing rank's report to the command. `reason`: the error as shown; `time`: time.time().

    invalid_input: the kind of error to raise for it; None where it is another failure.
    """

    rank: int
    time: float
    reason: str
    lost_peer: bool = False
    invalid_input: type[ConfigError] | None = None
    final: bool = False


def format_error(error: BaseException) -> str:
    """The error as shown: an expected one without its traceback, one of the user's code with their part of it."""
    return str(error) if isinstance(error, ExpectedError | ConfigError) else user_traceback(error)


def failure_report(error: Exception, rank: int) -> FailureReport:
    """The report of a rank's error."""
    return FailureReport(
        rank=error.rank if isinstance(error, PeerStopped) else rank,
        time=time.time(),
        reason=format_error(error),
        lost_peer=lost_a_peer(error),
        invalid_input=type(error) if isinstance(error, ConfigError) else None,
        final=isinstance(error, ConfigError | NotFinite),
    )


def delay_exit(error: BaseException) -> None:
    """Delay the exit of a rank that only lost a peer, so that the peer's failure comes first."""
    if lost_a_peer(error):
        let_others_end_first()


def let_others_end_first() -> None:
    """Wait for EXIT_DELAY, or SIGTERM: an external launcher ends all ranks as soon as one has failed."""
    signal.signal(signal.SIGTERM, exit_by_signal)
    time.sleep(EXIT_DELAY)


def lost_a_peer(error: BaseException) -> bool:
    """Whether the error is a collective that broke because another rank went away."""
    from torch.distributed import DistError

    text = str(error).lower()
    return isinstance(error, DistError | RuntimeError) and any(sign in text for sign in LOST_PEER)


def first_failure(reports: Iterable[FailureReport], exit_codes: Mapping[int, int]) -> ConfigError | RankFailed:
    """The error to raise in the command.

    Args:
        exit_codes: of the ranks that ended too early, before the command killed any (negative: a signal).
    """
    reports = sorted(reports, key=lambda report: report.time)
    final = any(report.final for report in reports)
    for report in reports:
        if report.invalid_input:
            return report.invalid_input(report.reason)
        if not report.lost_peer:
            return RankFailed(report.rank, report.reason, final)
    reported = {report.rank for report in reports}
    for rank, code in exit_codes.items():
        if rank not in reported:
            return RankFailed(rank, exit_reason(code), final)
    if reports:
        return RankFailed(reports[0].rank, reports[0].reason, final)
    return RankFailed(None, "no rank reported an error")


def exit_reason(code: int) -> str:
    """An exit code in words; a negative one is a signal."""
    if code == 0:
        return "it ended with status 0 before its work was done"
    if code > 0:
        return f"it ended with exit status {code} and no traceback"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = f" (the system does so when memory runs out: {MEMORY_HINT})" if code == -signal.SIGKILL else ""
    return f"it was ended by {name}{hint}"
