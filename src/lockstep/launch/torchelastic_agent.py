"""torchrun's agent, where it starts ranks on several machines: it may hold the store, and may be cut off from it."""

import os
import signal
import time
from pathlib import Path

UNRESPONSIVE_AFTER = 2.0
"""Seconds without a sign of life after which an agent is cut off: it looks at its ranks ten times a second."""
POLL_INTERVAL = 0.1


def agent_hosts_store() -> bool:
    """Whether the store at MASTER_PORT is the agent's. It outlives the ranks, so that others may have met there."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def kill_if_cut_off(agent: int, local_rank: int) -> bool:
    """End the agent of a rank that fails, where no restart is left and the agent waits for a machine out of reach.

    It asks the store of another machine how many wait, and if no answer can come it stays in torch's C++ until TCP
    gives up, a quarter of an hour later, and hears no signal. Returns whether this rank has ended it, whose turn comes
    after those of lower ranks on its machine.
    """
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT"), os.environ.get("TORCHELASTIC_MAX_RESTARTS")
    if restarts[0] is None or restarts[0] != restarts[1]:
        return False
    before, deadline = _wakings(agent), time.monotonic() + UNRESPONSIVE_AFTER + 2 * POLL_INTERVAL * local_rank
    while time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL)
        if _wakings(agent) != before:
            return False
    if before is None or os.getppid() != agent:
        return False
    os.kill(agent, signal.SIGKILL)
    return True


def _wakings(process: int) -> str | None:
    """How often the process's main thread has gone to sleep; None where there is no telling."""
    try:
        status = Path(f"/proc/{process}/task/{process}/status").read_text()
    except OSError:
        return None
    return next((line for line in status.splitlines() if line.startswith("voluntary_ctxt_switches")), None)
