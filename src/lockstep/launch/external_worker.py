"""The command as a rank that torchrun, SLURM or mpirun started: it starts no process itself."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from lockstep.config_error import ConfigError
from lockstep.errors import PeerStopped, TrainingInterrupted
from lockstep.launch.external_launcher import rendezvous_variables
from lockstep.launch.external_rendezvous import open_external_rendezvous
from lockstep.launch.failure import format_error, lost_a_peer, wait_for_first_failure
from lockstep.launch.peers import kill_stopped_peers, local_peer_pids, stopped_peer, timed_out, timeout_text
from lockstep.launch.private_dir import cache_variables, remove_private_folder
from lockstep.launch.signals import exit_by_signal, signal_handlers
from lockstep.launch.stop_request import SignalRequest
from lockstep.launch.topology import RankContext
from lockstep.launch.worker import process_group, redirect_output, run_engine
from lockstep.parallel.messages import all_gather_bytes
from lockstep.schemas.plan_json import from_json, to_json
from lockstep.world import Launchable, World

UNRESPONSIVE_AFTER = 2.0
"""Seconds without a context switch after which an agent counts as cut off: it polls its ranks ten times a second."""
POLL_INTERVAL = 0.1
PARENT_POLL_INTERVAL = 0.5


@dataclass
class ExternalRank:
    """This process as a rank: the store of its process group, and the pids of this machine's other ranks."""

    world: World
    context: RankContext
    store: Store | None = None
    peers: dict[int, int] = field(default_factory=dict)

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Stay in one process group for the whole command: ranks cannot rendezvous twice at torchrun's store."""
        exit_with_agent()
        with signal_handlers(exit_by_signal):
            variables = rendezvous_variables(os.environ)
            os.environ.update({**cache_variables(), **os.environ, **self.context.variables, **variables})
            with (
                self.failures_reported(),
                open_external_rendezvous(self.world, self.context) as rendezvous,
                process_group(self.world, self.context, rendezvous) as self.store,
            ):
                self.peers = local_peer_pids(self.store, self.context) if self.store else {}
                yield

    def run(self, work: Launchable, engine: str) -> Any:
        """Run the engine in this process, which is a member of the group."""
        with self.failures_reported():
            if dist.is_initialized():  # every rank composed its own plan, and the clock names the run's folder
                work = from_json(all_gather_bytes(to_json(work).encode())[0].decode())
            redirect_output(Path(work.world.folder), self.context)
            stop = SignalRequest(self.context.rank, self.context.world_size, self.store)
            try:
                result = run_engine(work, engine, replace(self.context, stop=stop))
                if isinstance(result, TrainingInterrupted):
                    result.number = stop.number
                return result
            except Exception as error:
                if stop.accepted and lost_a_peer(error):
                    raise SystemExit(128 + stop.number) from None  # the same signal ended the peer
                if work.world.num_nodes > 1 and timed_out(error):
                    limit = timeout_text(work.world)
                    error.add_note(f"A rank on another machine, or the link to it, did not answer within {limit}.")
                raise

    @contextmanager
    def failures_reported(self) -> Iterator[None]:
        """Report an error and exit with status 1."""
        terminal, parent = os.dup(2), os.getppid()
        try:
            yield
        except ConfigError:
            raise
        except Exception as error:
            cause = stopped_peer(error, self.world, self.peers) or error
            wait_for_first_failure(cause)
            killed_agent = self.world.num_nodes > 1 and kill_if_cut_off(parent, self.context.local_rank)
            write_report(cause, self.context.rank, terminal, to_terminal=killed_agent)
            kill_stopped_peers(cause, self.peers)
            raise SystemExit(1) from None
        finally:
            os.close(terminal)


def write_report(error: Exception, rank: int, terminal: int, to_terminal: bool) -> None:
    """Write why this rank ends: to torchrun's error file for its report; if there is none, to the terminal.

    torchrun calls the earliest failure the cause, by whole seconds. A rank that only lost a peer is delayed, so
    torchrun ends it before it writes here. A rank that kills a stopped peer writes an earlier time.
    """
    failed = error.rank if isinstance(error, PeerStopped) else rank
    message = f"rank {failed} failed: {format_error(error)}"
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if file is None or to_terminal:
        os.write(terminal, f"{message}\n".encode())
    else:
        extra = {"py_callstack": message, "timestamp": str(int(time.time()) - (failed != rank))}
        Path(file).write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))


def exit_with_agent() -> None:
    """Exit when torchrun's agent, the parent of its ranks, is gone, even by SIGKILL."""
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
