"""The process group of a job's ranks: from the store at which they meet to init_process_group."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from lockstep.launch.network_interface import name_interface
from lockstep.launch.store import Rendezvous, join
from lockstep.launch.topology import RankContext
from lockstep.world import World

LOOPBACK_INTERFACE = "lo0" if sys.platform == "darwin" else "lo"


@contextmanager
def process_group(world: World, context: RankContext, rendezvous: Rendezvous) -> Iterator[Store | None]:
    """Join the process group; yields its store. A world that is not distributed has neither.

    Lightning uses a group that is initialised already.
    """
    if world.accelerator == "gpu":
        torch.cuda.set_device(context.local_rank % torch.cuda.device_count())  # in turn, where ranks share
    if not world.distributed:
        yield None
        return
    if world.num_nodes == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK_INTERFACE)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", LOOPBACK_INTERFACE)
    else:
        name_interface(rendezvous.address or os.environ.get("MASTER_ADDR", ""))
    store = join(world, context, rendezvous)
    dist.init_process_group(
        world.backend,
        timeout=timedelta(seconds=world.process_group.timeout),
        store=store,
        rank=context.rank,
        world_size=context.world_size,
        # nccl then connects all ranks at once; else the first call does, and a ring's first call need not involve all
        device_id=torch.device("cuda", torch.cuda.current_device()) if world.backend == "nccl" else None,
    )
    yield store
    dist.destroy_process_group()  # after an error the peers may be gone: the process just ends
