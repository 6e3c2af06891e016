"""The command as a rank that torchrun, SLURM or mpirun started: it starts no process itself."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from lockstep.config_error import ConfigError
from lockstep.errors import PeerStopped, TrainingInterrupted
from lockstep.launch.external_launcher import rendezvous_variables
from lockstep.launch.external_rendezvous import open_external_rendezvous
from lockstep.launch.failure import delay_exit, format_error, lost_a_peer
from lockstep.launch.peers import kill_stopped_peers, local_peer_pids, stopped_peer, timed_out, timeout_text
from lockstep.launch.private_dir import own_caches
from lockstep.launch.signal_request import SignalRequest
from lockstep.launch.signals import exit_by_signal, signal_handlers
from lockstep.launch.topology import RankContext
from lockstep.launch.torchelastic_agent import exit_with_agent, kill_if_cut_off
from lockstep.launch.worker import process_group, redirect_output, run_engine
from lockstep.parallel.messages import broadcast_bytes
from lockstep.schemas.plan_json import from_json, to_json
from lockstep.world import Launchable, World

Work = TypeVar("Work", bound=Launchable)


@dataclass
class Membership:
    """Of this process in its process group: the group's store, and process numbers of this machine's other ranks."""

    store: Store | None = None
    peers: dict[int, int] = field(default_factory=dict)


MEMBERSHIP = Membership()


@contextmanager
def joined_group(world: World, context: RankContext) -> Iterator[None]:
    """Stay in one process group for the whole command: ranks cannot rendezvous twice at torchrun's store."""
    exit_with_agent()
    with signal_handlers(exit_by_signal):
        os.environ.update({**own_caches(), **os.environ, **context.variables, **rendezvous_variables(os.environ)})
        with (
            report_failure(world, context),
            open_external_rendezvous(world, context) as rendezvous,
            process_group(world, context, rendezvous) as store,
        ):
            MEMBERSHIP.store, MEMBERSHIP.peers = store, local_peer_pids(store, context) if store else {}
            yield


def run_external(work: Launchable, engine: str, context: RankContext) -> Any:
    """Run the engine in this process, which is a member of the group."""
    with report_failure(work.world, context):
        work = plan_of_rank_zero(work)
        redirect_output(Path(work.world.folder), context)
        stop = SignalRequest(context.rank, context.world_size, MEMBERSHIP.store)
        try:
            result = run_engine(work, engine, replace(context, stop=stop))
            if isinstance(result, TrainingInterrupted):
                result.number = stop.number
            return result
        except Exception as error:
            if stop.accepted and lost_a_peer(error):
                raise SystemExit(128 + stop.number) from None  # the same signal ended the peer
            if work.world.num_nodes > 1 and timed_out(error):
                error.add_note(
                    f"A rank on another machine, or the link to it, did not answer within {timeout_text(work.world)}."
                )
            raise


@contextmanager
def report_failure(world: World, context: RankContext) -> Iterator[None]:
    """Report an error and exit with status 1."""
    terminal, parent = os.dup(2), os.getppid()
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        cause = stopped_peer(error, world, MEMBERSHIP.peers) or error
        delay_exit(cause)
        killed_agent = world.num_nodes > 1 and kill_if_cut_off(parent, context.local_rank)
        write_report(cause, context, terminal, to_terminal=killed_agent)
        kill_stopped_peers(cause, MEMBERSHIP.peers)
        raise SystemExit(1) from None
    finally:
        os.close(terminal)


def write_report(error: Exception, context: RankContext, terminal: int, to_terminal: bool) -> None:
    """Write why this rank ends: to torchrun's error file for its report; where there is none, to the terminal.

    torchrun calls the earliest failure the cause, by whole seconds. A rank that only lost a peer is delayed, so
    torchrun ends it before it writes here. A rank that kills a stopped peer writes an earlier time.
    """
    failed = error.rank if isinstance(error, PeerStopped) else context.rank
    message = f"rank {failed} failed: {format_error(error)}"
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if file is None or to_terminal:
        os.write(terminal, f"{message}\n".encode())
    else:
        extra = {"py_callstack": message, "timestamp": str(int(time.time()) - (failed != context.rank))}
        Path(file).write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))


def plan_of_rank_zero(work: Work) -> Work:
    """Broadcast rank 0's plan: every rank composed its own, and the clock names the run's folder."""
    if not dist.is_initialized():
        return work
    received: Work = from_json(broadcast_bytes(to_json(work).encode()).decode())
    return received
