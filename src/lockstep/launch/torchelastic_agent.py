"""torchrun's agent, the parent of ranks that torchrun starts: it may host the store, be killed, or lose its network."""

import os
import threading
import time
from contextlib import suppress

import psutil

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


def kill_if_cut_off(agent_pid: int, local_rank: int) -> bool:
    """Kill the agent of a failing rank if no restart is left and it waits for an unreachable machine; return if so.

    The agent asks another machine's store how many agents wait. If no reply comes it stays in torch's C++ until TCP
    times out after a quarter of an hour, and handles no signal. Ranks of one machine check one after the other.
    """
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT")
    if restarts is None or restarts != os.environ.get("TORCHELASTIC_MAX_RESTARTS"):
        return False
    with suppress(psutil.Error):
        agent = psutil.Process(agent_pid)
        switches = agent.num_ctx_switches().voluntary
        deadline = time.monotonic() + UNRESPONSIVE_AFTER + 2 * POLL_INTERVAL * local_rank
        while agent.num_ctx_switches().voluntary == switches:
            if time.monotonic() > deadline:
                agent.kill()
                return True
            time.sleep(POLL_INTERVAL)
    return False
