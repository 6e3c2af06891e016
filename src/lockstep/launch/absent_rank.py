"""Name the rank for which others waited in vain, with the line where it is: a signal makes it write its stack."""

import faulthandler
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from lockstep.launch.failure import RankFailed, timeout_text
from lockstep.launch.processes import is_stopped
from lockstep.targets.frames import user_stack
from lockstep.world import World

DUMP_SIGNAL = signal.SIGUSR2  # faulthandler answers, even in C++ with Python's lock
PEER_DELAY, DUMP_DELAY = 2.0, 0.5  # s in which peers report their timeouts, too; in which a rank writes its stack


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
