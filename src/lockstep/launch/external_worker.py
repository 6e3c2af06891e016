"""The script as a rank that torchrun, SLURM or mpirun started: it starts no process itself."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from lockstep.config_error import ConfigError
from lockstep.errors import PeerStopped, TrainingInterrupted
from lockstep.launch.failure import delay_exit, format_error, lost_a_peer
from lockstep.launch.graceful_shutdown import SignalRequest
from lockstep.launch.peers import kill_stopped_peers, limit, local_peer_pids, stopped_peer, timed_out
from lockstep.launch.private_dir import own_caches, remove_private_folder
from lockstep.launch.process_group import process_group
from lockstep.launch.rank_process import redirect_output
from lockstep.launch.rendezvous import open_external_rendezvous
from lockstep.launch.signals import ends_rank
from lockstep.launch.topology import RankContext, rendezvous_variables
from lockstep.launch.torchelastic_agent import kill_if_cut_off
from lockstep.launch.worker import run_engine
from lockstep.parallel import from_first
from lockstep.schemas.coerce import from_dict
from lockstep.world import Launchable, World

Work = TypeVar("Work", bound=Launchable)


@dataclass
class Membership:
    """Of the process group that this process has joined: its store, and process numbers of this machine's ranks."""

    store: Store | None = None
    peers: dict[int, int] = field(default_factory=dict)


MEMBERSHIP = Membership()

POLL_INTERVAL = 0.5
"""Seconds between two looks at whether torchrun's agent is there."""


@contextmanager
def joined_group(world: World, context: RankContext) -> Iterator[None]:
    """Stay in one process group while the job runs: ranks cannot rendezvous twice at torchrun's store."""
    exit_with_agent()
    with ends_rank():
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
            if stop.heeded and lost_a_peer(error):
                raise SystemExit(128 + stop.number) from None  # whoever ended the peer has told this rank, too
            if work.world.num_nodes > 1 and timed_out(error):
                error.add_note(
                    f"A rank on another machine, or the link to it, did not answer within {limit(work.world)}."
                )
            raise


@contextmanager
def report_failure(world: World, context: RankContext) -> Iterator[None]:
    """An error is the rank's end, with exit status 1."""
    terminal, parent = os.dup(2), os.getppid()
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        cause = stopped_peer(error, world, MEMBERSHIP.peers) or error
        delay_exit(cause)
        alone = world.num_nodes > 1 and kill_if_cut_off(parent, context.local_rank)
        write_report(cause, context, terminal, in_print=alone)
        kill_stopped_peers(cause, MEMBERSHIP.peers)
        raise SystemExit(1) from None
    finally:
        os.close(terminal)


def exit_with_agent() -> None:
    """End this rank when torchrun's agent is gone, even by SIGKILL."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    agent = os.getppid()

    def look() -> None:
        while os.getppid() == agent:
            time.sleep(POLL_INTERVAL)
        remove_private_folder()
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()


def write_report(error: Exception, context: RankContext, terminal: int, in_print: bool) -> None:
    """Why this rank ends: in the file from which torchrun's own report takes it; others have none, so there in print.

    torchrun calls the earliest failure the cause, by whole seconds. A rank that only lost a peer has lingered until
    here, so it has been ended before it could leave a file; one that ends a peer was the first to know.
    """
    blamed = error.rank if isinstance(error, PeerStopped) else context.rank
    said = f"rank {blamed} failed: {format_error(error)}"
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if file is None or in_print:  # a torchrun that is cut off reports nothing
        os.write(terminal, f"{said}\n".encode())
    else:
        extra = {"py_callstack": said, "timestamp": str(int(time.time()) - (blamed != context.rank))}
        Path(file).write_text(json.dumps({"message": {"message": said, "extraInfo": extra}}))


def plan_of_rank_zero(work: Work) -> Work:
    """Broadcast rank 0's plan: every rank composed its own, and the run's folder is named by the clock."""
    if not dist.is_initialized():
        return work
    return from_dict(type(work), json.loads(from_first(json.dumps(asdict(work)).encode())))
