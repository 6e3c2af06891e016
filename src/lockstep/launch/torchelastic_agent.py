"""torchrun's agent, the parent of ranks that torchrun starts: it may host the store, be killed, or lose its network."""

import os
import signal
import threading
import time
from pathlib import Path

from lockstep.launch.private_dir import remove_private_folder

UNRESPONSIVE_AFTER = 2.0
"""Seconds without a context switch after which an agent counts as cut off: it polls its ranks ten times a second."""
POLL_INTERVAL = 0.1
PARENT_POLL_INTERVAL = 0.5


def agent_hosts_store() -> bool:
    """Whether the store at MASTER_PORT is the agent's. It outlives ranks, so it may hold keys of earlier ones."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def exit_with_agent() -> None:
    """Exit when the agent is gone, even by SIGKILL."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    agent = os.getppid()

    def poll() -> None:
        while os.getppid() == agent:
            time.sleep(PARENT_POLL_INTERVAL)
        remove_private_folder()
        os._exit(1)

    threading.Thread(target=poll, daemon=True).start()


def kill_if_cut_off(agent: int, local_rank: int) -> bool:
    """Kill the agent of a failing rank, where no restart is left and the agent waits for an unreachable machine.

    The agent asks another machine's store how many agents wait. If no reply comes it stays in torch's C++ until TCP
    times out after a quarter of an hour, and handles no signal. Returns whether this rank has killed it; ranks of one
    machine check one after the other.
    """
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT"), os.environ.get("TORCHELASTIC_MAX_RESTARTS")
    if restarts[0] is None or restarts[0] != restarts[1]:
        return False
    before, deadline = _context_switches(agent), time.monotonic() + UNRESPONSIVE_AFTER + 2 * POLL_INTERVAL * local_rank
    while time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL)
        if _context_switches(agent) != before:
            return False
    if before is None or os.getppid() != agent:
        return False
    os.kill(agent, signal.SIGKILL)
    return True


def _context_switches(process: int) -> str | None:
    """How often the process's main thread has waited, as /proc says; None without /proc."""
    try:
        status = Path(f"/proc/{process}/task/{process}/status").read_text()
    except OSError:
        return None
    return next((line for line in status.splitlines() if line.startswith("voluntary_ctxt_switches")), None)
