"""The rendezvous of the ranks of a process group, at a store in a file, and the wait until all have joined.

`init_method` names torch's three ways, file://, env:// (MASTER_ADDR and MASTER_PORT) and tcp://. By default torch lets
rank 0 open the port on every interface of the machine, and all ranks trust what anybody writes there. Ranks that the
command starts use a file that only its owner can access; for the others see external_rendezvous.py.
"""

import ctypes
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import psutil
from torch.distributed import FileStore, PrefixStore, Store  # type: ignore[attr-defined]

from lockstep.errors import RendezvousTimeout
from lockstep.launch.timeouts import timeout_text
from lockstep.launch.topology import RankContext
from lockstep.world import World

KEY = "process_group.init_method"
POLL_INTERVAL = 0.005
ANY_PORT = 9
"""The port of a datagram socket that sends nothing."""


def keep_alive(store: Store) -> Store:
    """Keep a store until the process ends: torch's threads may use it after Python's last reference is gone."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))
    return store


@dataclass(frozen=True)
class Rendezvous:
    """A rendezvous at a file that only its owner can access; `address` and `port` are MASTER_ADDR and MASTER_PORT."""

    path: str = ""
    address: str = ""
    port: int = 0

    def __str__(self) -> str:
        return self.path

    @property
    def variables(self) -> dict[str, str]:
        """The variables that env:// reads."""
        return {"MASTER_ADDR": self.address, "MASTER_PORT": str(self.port)} if self.port else {}

    def connect(self, world: World, deadline: float) -> Store:
        """Return the store, with the keys of this attempt alone."""
        # its destructor writes to the file, and aborts the process if a faster peer has removed the file
        store = keep_alive(FileStore(self.path))
        return PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)

    def group_store(self, store: Store, world: World, context: RankContext) -> Store:
        """Return the store of the process group."""
        return store


def join(world: World, context: RankContext, rendezvous: Rendezvous) -> Store:
    """Return the store of the rendezvous, once every rank has joined.

    Raises:
        RendezvousTimeout: some ranks did not join within the timeout of the process group.
    """
    deadline = time.monotonic() + world.process_group.timeout
    store = rendezvous.connect(world, deadline)
    store.set_timeout(timedelta(seconds=world.process_group.timeout))
    keys = [f"rank {rank} has joined" for rank in range(context.world_size)]
    group = rendezvous.group_store(store, world, context)
    if group.check([keys[context.rank]]):
        raise RendezvousTimeout(f"an earlier group has used {rendezvous}; remove it, or write {KEY}=file")
    while True:
        group.set(keys[context.rank], "")
        absent = [str(rank) for rank, key in enumerate(keys) if not group.check([key])]
        if not absent:
            return keep_alive(group)
        if time.monotonic() > deadline:
            ranks = f"rank{'s' if len(absent) > 1 else ''} {', '.join(absent)} of {context.world_size}"
            hint = "; hydra.run.dir=FOLDER has to lie on a disk that all machines share" if world.num_nodes > 1 else ""
            raise RendezvousTimeout(f"{ranks} did not join within {timeout_text(world)}{hint}")
        time.sleep(POLL_INTERVAL * context.world_size)
        group = rendezvous.group_store(store, world, context)


def interface_towards(host: str) -> str | None:
    """Return the interface with this machine's source address for packets to `host`, or None.

    If that is loopback, because `host` is this machine, return the only other interface if there is exactly one. By
    default gloo and nccl take the address that the machine's own name resolves to, often loopback or none.
    """
    entries = [(name, entry) for name, entries in psutil.net_if_addrs().items() for entry in entries]
    addresses = [(name, entry.address) for name, entry in entries if entry.family == socket.AF_INET]
    beyond = {name: address for name, address in addresses if not address.startswith("127.")}
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, ANY_PORT))
        source = probe.getsockname()[0]
        if source.startswith("127.") and len(beyond) == 1:
            return next(iter(beyond))
        return next((name for name, address in addresses if name in beyond and address == source), None)
    return None
