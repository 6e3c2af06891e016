"""Find out which rank failed first, and why, and end the command with that reason, printed once.

When one rank dies, its peers' collectives break a moment later: only the cause is shown, by the kinds of failures.
"""

import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.base.config_error import ConfigError, message_lines
from lockstep.base.errors import ExpectedError, causes
from lockstep.launch.signals import end_command
from lockstep.launch.topology import RankContext
from lockstep.plan.targets.frames import MEMORY_HINT, user_traceback
from lockstep.plan.world import World

EXIT_DELAY = 3.0  # s before a rank that only lost a peer, or waited for it in vain, exits
SERVER_LOST = "the fork server, from which all ranks start, is lost: the system may have killed it to free memory"
HINTS = {
    -signal.SIGKILL: f" (the system does so when memory runs out: {MEMORY_HINT})",
    -signal.SIGABRT: (
        " (gloo does so if ranks call different collectives, or with unequal sizes: on a ragged last batch set"
        " drop_last=true; the output above, or ranks/<n>.log, has its message)"
    ),
    255: f", or {SERVER_LOST}",  # multiprocessing's exit status without its server
}
"""What is added to exit codes."""


class RankFailed(RuntimeError):
    """A rank, or if None the fork server, ended before its work was done; the message is its traceback or signal."""

    def __init__(self, rank: int | None, reason: str) -> None:
        super().__init__(rank, reason)
        self.rank, self.reason = rank, reason

    def __str__(self) -> str:
        return self.reason if self.rank is None else f"rank {self.rank} failed: {self.reason}"

    _render_traceback_ = message_lines


OWN_ERROR, NO_REPORT, TIMEOUT, LOST_PEER = range(4)
"""The kinds of failures; the first one is the cause of the others, and among equals the earliest."""

SIGNS = (
    (OWN_ERROR, ("dataloader timed out",)),
    (LOST_PEER, ("connection closed by peer", "connection reset", "broken pipe", "connection refused")),  # gloo
    (LOST_PEER, ("socket closed", "connection closed by remote peer", "ncclremoteerror", "remote process")),  # nccl
    (TIMEOUT, ("timed out",)),
)
"""Parts of the messages of collectives that another rank has broken; the first match counts."""


@dataclass(frozen=True)
class FailureReport:
    """A failing rank's report to the command. `error`: what the command raises for it; `time`: time.time()."""

    error: ConfigError | RankFailed
    time: float
    kind: int = OWN_ERROR


def format_error(error: BaseException) -> str:
    """Format an error: an expected one without traceback, one of the user's code with the traceback of that code."""
    return str(error) if isinstance(error, ExpectedError | ConfigError) else user_traceback(error)


def root_error(error: BaseException) -> BaseException:
    """Return the expected error, or the KeyboardInterrupt, that a later one hides, as one of a teardown does."""
    kinds = ExpectedError | ConfigError | KeyboardInterrupt
    return next((cause for cause in causes(error) if isinstance(cause, kinds)), error)


def failure_report(error: BaseException, rank: int) -> FailureReport:
    if isinstance(error, ConfigError):
        return FailureReport(type(error)(str(error)), time.time())
    return FailureReport(RankFailed(rank, format_error(error)), time.time(), kind_of(error))


def delay_exit() -> None:
    """Wait for EXIT_DELAY, or SIGTERM: an external launcher ends all ranks as soon as one has failed."""
    signal.signal(signal.SIGTERM, end_command)
    time.sleep(EXIT_DELAY)


def kind_of(error: BaseException) -> int:
    """Return LOST_PEER or TIMEOUT for an error of a collective that another rank has broken, otherwise OWN_ERROR."""
    text = str(error).lower() if isinstance(error, RuntimeError) else ""
    return next((kind for kind, signs in SIGNS if any(sign in text for sign in signs)), OWN_ERROR)


def timeout_text(world: World) -> str:
    return f"{world.process_group.timeout:g} s (process_group.timeout)"


def first_failure(reports: Mapping[int, FailureReport], exit_codes: Mapping[int, int]) -> FailureReport:
    """Return the cause in a command whose ranks ended too early with these codes (negative: a signal)."""
    failures = [*reports.values()]
    for rank in exit_codes.keys() - reports.keys():
        failures.append(FailureReport(RankFailed(rank, exit_reason(exit_codes[rank])), 0.0, NO_REPORT))
    return min(failures, key=lambda failure: (failure.kind, failure.time))


def exit_reason(code: int) -> str:
    """Describe the exit code of a rank; a negative one is a signal."""
    if code >= 0:
        return f"it ended with exit status {code} and no traceback{HINTS.get(code, '')}"
    name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
    return f"it was ended by {name}{HINTS.get(code, '')}"


def print_exit_reason(reason: str, context: RankContext | None) -> None:
    """Print why the command ends, once for all its ranks on a machine; each may have failed by itself."""
    print(end="", flush=True)  # a program without streams may have called `run`
    if context is None or context.local_rank == 0:
        prefix = f"rank {context.rank}: " if context and context.rank else ""
        print(prefix + reason, file=sys.stderr, flush=True)
