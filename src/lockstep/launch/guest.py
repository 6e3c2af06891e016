"""The script as a rank that torchrun or SLURM started: it takes the place it was given and starts nothing."""

import os
import socket
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.multiprocessing.errors import record

from lockstep.launch.failure import LINGER, lost_a_peer
from lockstep.launch.place import Place, rendezvous_variables
from lockstep.launch.worker import group, quiet_unless_first, run_engine
from lockstep.plan import Plan
from lockstep.record import Metrics
from lockstep.refusal import Refusal


@contextmanager
def membership(plan: Plan, place: Place) -> Iterator[None]:
    """Hold this process's place in the group while the job runs: groups cannot be met twice at torchrun's store."""
    os.environ.update({**place.variables, **rendezvous_variables(os.environ)})
    with own_end(place), group(plan, place, loopback_store(plan, place)):
        yield


def work_as_guest(plan: Plan, engine: str, place: Place) -> Metrics:
    """Run the engine in this process, which is a member of the group."""
    with own_end(place):
        plan = plan_of_rank_zero(plan)
        quiet_unless_first(Path(plan.run_dir), place)
        return record(run_engine)(plan, engine, place) or {}


@contextmanager
def own_end(place: Place) -> Iterator[None]:
    """An error is the rank's end, with exit status 1.

    torchrun prints the traceback of the first rank that failed, from the file that `record` leaves it; others do not,
    so there the rank prints its own.
    """
    terminal = os.dup(2)
    try:
        yield
    except Refusal:
        raise
    except Exception as error:
        if lost_a_peer(error):
            time.sleep(LINGER)
        if "TORCHELASTIC_ERROR_FILE" not in os.environ:
            trace = "".join(traceback.format_exception(error))
            os.write(terminal, f"rank {place.rank} failed: {trace}".encode())
        raise SystemExit(1) from None
    finally:
        os.close(terminal)


def loopback_store(plan: Plan, place: Place) -> TCPStore | None:
    """Where ranks on a single machine meet. torch would listen on every interface; here rank 0 brings the socket.

    None where torchrun's agent holds the store, or ranks on several machines have to reach it.
    """
    if plan.num_nodes > 1 or plan.strategy.wrap != "ddp" or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return None
    port, listener = int(os.environ["MASTER_PORT"]), None
    if place.rank == 0:
        listener = socket.create_server(("127.0.0.1", port)).detach()
    return TCPStore("127.0.0.1", port, place.world_size, place.rank == 0, master_listen_fd=listener)


def plan_of_rank_zero(plan: Plan) -> Plan:
    """Every rank composed a plan of its own; rank 0's counts, above all its folder, which is named by the clock."""
    if not dist.is_initialized():
        return plan
    plans: list[Plan] = [plan]
    dist.broadcast_object_list(plans)
    return plans[0]
