"""Find out which rank failed first, and why, and end the command with that reason, printed once.

When one rank dies, its peers' collectives break a moment later. Only the cause is shown (see OWN_ERROR). If ranks have
waited in vain for one that still runs, that one is shown, with the line where it is.
"""

import inspect
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lockstep.base.config_error import ConfigError, message_lines
from lockstep.base.errors import ExpectedError, NotFinite, causes
from lockstep.launch.signals import end_command, is_stopped
from lockstep.launch.topology import RankContext
from lockstep.plan.targets.frames import MEMORY_HINT, user_stack, user_traceback
from lockstep.plan.world import World

DEBUGGERS = ("bdb", "debugpy", "pydevd", "_pydevd_bundle")  # packages of pdb and of IDEs

DUMP_SIGNAL = signal.SIGUSR2  # a rank writes its stack, even one that waits in C++ with Python's lock
PEER_DELAY, DUMP_DELAY = 2.0, 0.5  # s in which peers report their timeouts, too; in which a rank writes its stack
EXIT_DELAY = 3.0  # s before a rank that only lost a peer, or waited for it in vain, exits

LOST_PEER_SIGNS = (
    *("connection closed by peer", "connection reset", "broken pipe", "connection refused", "socket closed"),
    *("connection closed by remote peer", "ncclremoteerror", "remote process"),
)
"""Parts of gloo's messages, then of nccl's."""

HINTS = {
    "SIGKILL": f" (the system does so when memory runs out: {MEMORY_HINT})",
    "SIGABRT": (
        " (gloo does so if ranks call different collectives, or with unequal sizes: on a ragged last batch set"
        " drop_last=true; the output above, or ranks/<n>.log, has its message)"
    ),
}


class RankFailed(RuntimeError):
    """A rank ended before its work was done. The message is its traceback, or the signal that ended it.

    rank: None if the fork server failed. final: a restart would fail again.
    """

    def __init__(self, rank: int | None, reason: str, final: bool = False) -> None:
        super().__init__(rank, reason, final)
        self.rank, self.reason, self.final = rank, reason, final

    def __str__(self) -> str:
        return self.reason if self.rank is None else f"rank {self.rank} failed: {self.reason}"

    _render_traceback_ = message_lines


OWN_ERROR, NO_REPORT, TIMEOUT_IN_USER_CODE, TIMEOUT, LOST_PEER = range(5)
"""The kinds of failures; the first one is the cause of the others, and among equals the earliest."""


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
    text, kind = format_error(error), OWN_ERROR
    if lost_a_peer(error):
        kind = LOST_PEER
    elif timed_out(error):
        kind = TIMEOUT_IN_USER_CODE if "Traceback" in text else TIMEOUT
    return FailureReport(RankFailed(rank, text, final=isinstance(error, NotFinite)), time.time(), kind)


def delay_exit() -> None:
    """Wait for EXIT_DELAY, or SIGTERM: an external launcher ends all ranks as soon as one has failed."""
    signal.signal(signal.SIGTERM, end_command)
    time.sleep(EXIT_DELAY)


def timed_out(error: BaseException) -> bool:
    """Whether an error is that of a collective that timed out, and not a user's DataLoader."""
    text = str(error).lower() if isinstance(error, RuntimeError) else ""
    return "timed out" in text and "dataloader timed out" not in text


def timeout_text(world: World) -> str:
    return f"{world.process_group.timeout:g} s (process_group.timeout)"


def lost_a_peer(error: BaseException) -> bool:
    """Whether the error is a collective that broke because another rank went away."""
    text = str(error).lower() if isinstance(error, RuntimeError) else ""
    return any(sign in text for sign in LOST_PEER_SIGNS)


def absent_rank(pids: Mapping[int, int], folder: Path, world: World) -> RankFailed:
    """Return the failure of the first of these ranks that is stopped, else of the first; `folder` gets its stack."""
    rank = min(pids, key=lambda rank: not is_stopped(pids[rank]))
    reason = f"did not answer within {timeout_text(world)}"
    if is_stopped(pids[rank]):
        return RankFailed(rank, f"it was stopped (by SIGSTOP, say) and {reason}")
    with suppress(OSError):
        os.kill(pids[rank], DUMP_SIGNAL)
        time.sleep(DUMP_DELAY)
        return RankFailed(rank, f"{user_stack((folder / f'stack-{rank}').read_text())}this rank {reason}")
    return RankFailed(rank, f"it {reason}")


def first_failure(reports: Mapping[int, FailureReport], exit_codes: Mapping[int, int]) -> FailureReport:
    """Return the cause in a command whose ranks ended too early with these codes (negative: a signal)."""
    failures = [*reports.values()]
    for rank in exit_codes.keys() - reports.keys():
        failures.append(FailureReport(RankFailed(rank, exit_reason(exit_codes[rank])), 0.0, NO_REPORT))
    return min(failures, key=lambda failure: (failure.kind, failure.time))


def exit_reason(code: int) -> str:
    """Describe the exit code of a rank; a negative one is a signal."""
    if code >= 0:
        return f"it ended with exit status {code} and no traceback"
    name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
    return f"it was ended by {name}{HINTS.get(name, '')}"


def is_debugged() -> bool:
    """Whether the program was started by a debugger, which stops at uncaught errors."""
    frames = (frame for frame, _ in traceback.walk_stack(inspect.currentframe()))
    return any(str(frame.f_globals.get("__name__")).partition(".")[0] in DEBUGGERS for frame in frames)


def print_exit_reason(reason: str, context: RankContext | None) -> None:
    """Print why the command ends, once for all its ranks on a machine; each may have failed by itself."""
    print(end="", flush=True)  # a program without streams may have called `run`
    if context is None or context.local_rank == 0:
        prefix = f"rank {context.rank}: " if context and context.rank else ""
        print(prefix + reason, file=sys.stderr, flush=True)
