"""Find out which rank failed first, and why, and end the command with that reason, printed once.

When one rank dies, its peers' collectives break a moment later. Only the cause is shown: a rank's own error before a
lost peer, an exit without a report (a signal) before a lost peer, and the earliest of equals. If all ranks have waited
in vain, that of one in the user's code is shown, or the rank that they waited for, with the line where it is.
"""

import faulthandler
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
from typing import NoReturn

from lockstep.config_error import ConfigError, message_lines
from lockstep.errors import ExpectedError, NotFinite
from lockstep.launch.private_dir import remove_private_folder
from lockstep.launch.signals import end_command, is_stopped
from lockstep.launch.topology import RankContext
from lockstep.targets.frames import MEMORY_HINT, user_stack, user_traceback
from lockstep.world import World

DEBUGGERS = ("bdb", "debugpy", "pydevd", "_pydevd_bundle")  # packages of pdb and of IDEs

DUMP_SIGNAL = signal.SIGUSR2  # a rank writes its stack, even one that waits in C++ with Python's lock
PEER_DELAY, DUMP_DELAY = 2.0, 0.5  # s in which peers report their timeouts, too; in which a rank writes its stack
EXIT_DELAY = 3.0  # s before a rank that only lost a peer, or waited for it in vain, exits

LOST_PEER = (
    *("connection closed by peer", "connection reset", "broken pipe", "connection refused", "socket closed"),
    *("connection closed by remote peer", "ncclremoteerror", "remote process"),
)
"""Parts of gloo's messages, then of nccl's."""

HINTS = {
    "SIGKILL": f" (the system does so when memory runs out: {MEMORY_HINT})",
    "SIGABRT": (
        " (gloo does so if ranks call different collectives, or with unequal sizes: on a ragged last batch set"
        " drop_last=true; {log} has its message)"
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


@dataclass(frozen=True)
class FailureReport:
    """A failing rank's report to the command. `error`: what the command raises for it; `time`: time.time()."""

    error: ConfigError | RankFailed
    time: float
    lost_peer: bool = False
    timed_out: bool = False


def format_error(error: BaseException) -> str:
    """Format an error: an expected one without traceback, one of the user's code with the traceback of that code."""
    return str(error) if isinstance(error, ExpectedError | ConfigError) else user_traceback(error)


def root_error(error: BaseException) -> BaseException:
    """Return the expected error, or the KeyboardInterrupt, that a later one hides, as one of a teardown does."""
    cause: BaseException | None = error
    seen: list[BaseException] = []  # an error may be raised from itself
    while cause is not None and cause not in seen:
        if isinstance(cause, ExpectedError | ConfigError | KeyboardInterrupt):
            return cause
        seen.append(cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return error


def failure_report(error: BaseException, rank: int) -> FailureReport:
    if isinstance(error, ConfigError):
        return FailureReport(type(error)(str(error)), time.time())
    cause = RankFailed(rank, format_error(error), final=isinstance(error, NotFinite))
    return FailureReport(cause, time.time(), lost_a_peer(error), timed_out(error))


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
    from torch.distributed import DistError

    text = str(error).lower() if isinstance(error, DistError | RuntimeError) else ""
    return any(sign in text for sign in LOST_PEER)


def write_stack_on_signal(path: Path) -> None:
    """Write the stack of this rank's main thread to a file whenever DUMP_SIGNAL comes."""
    faulthandler.register(DUMP_SIGNAL, path.open("w"), all_threads=False)


def absent_rank(absent: Mapping[int, tuple[int, Path]], world: World) -> RankFailed | None:
    """Return the failure of the first stopped rank, else of the first, from the pids and the files for their stacks."""
    if not absent:
        return None
    rank, (pid, path) = min(absent.items(), key=lambda item: not is_stopped(item[1][0]))
    reason = f"did not answer within {timeout_text(world)}"
    if is_stopped(pid):
        return RankFailed(rank, f"it was stopped (by SIGSTOP, say) and {reason}")
    with suppress(OSError):
        os.kill(pid, DUMP_SIGNAL)
        time.sleep(DUMP_DELAY)
        return RankFailed(rank, f"{user_stack(path.read_text())}this rank {reason}")
    return RankFailed(rank, f"it {reason}")


def first_failure(reports: Mapping[int, FailureReport], exit_codes: Mapping[int, int]) -> ConfigError | RankFailed:
    """Return the error to raise in the command, whose ranks ended too early with these codes (negative: a signal)."""
    silent = [rank for rank in exit_codes if rank not in reports]
    if silent and all(report.lost_peer for report in reports.values()):
        return RankFailed(silent[0], exit_reason(exit_codes[silent[0]], silent[0]))

    def order(report: FailureReport) -> tuple[bool, bool, float]:
        return report.lost_peer, report.timed_out and "Traceback" not in str(report.error), report.time

    return min(reports.values(), key=order).error


def exit_reason(code: int, rank: int = 0) -> str:
    """Describe the exit code of a rank; a negative one is a signal."""
    if code == 0:
        return "it ended with status 0 before its work was done"
    if code > 0:
        return f"it ended with exit status {code} and no traceback"
    name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
    log = f"ranks/{rank}.log" if rank else "the output above"
    return f"it was ended by {name}{HINTS.get(name, '').format(log=log)}"


def is_debugged() -> bool:
    """Whether the program was started by a debugger, which stops at uncaught errors."""
    frames = (frame for frame, _ in traceback.walk_stack(inspect.currentframe()))
    return any(str(frame.f_globals.get("__name__")).partition(".")[0] in DEBUGGERS for frame in frames)


def exit_now(status: int) -> NoReturn:
    """Exit a rank of an external launcher without the interpreter's own clean-up, at which gloo's threads may abort."""
    remove_private_folder()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def print_exit_reason(reason: str, context: RankContext | None) -> None:
    """Print why the command ends, once for all its ranks."""
    print(end="", flush=True)  # a program without streams may have called `run`
    if context is None or context.rank == 0:
        print(reason, file=sys.stderr, flush=True)
    elif context is not None and context.local_rank == 0:  # of another machine, which may have failed by itself
        print(f"rank {context.rank}: {reason}", file=sys.stderr, flush=True)
