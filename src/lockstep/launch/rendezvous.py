"""The rendezvous of the ranks of a process group: a file that only its owner can write to, and the wait for all ranks.

torch's env:// and tcp:// open a port on every interface, where ranks trust what anybody writes. So ranks meet at a
file: in the job's folder, or beside the run's if an external launcher started them.
"""

import ctypes
import hashlib
import os
import secrets
import socket
import stat
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psutil
from torch.distributed import FileStore, PrefixStore, Store  # type: ignore[attr-defined]

from lockstep.base.config_error import config_error
from lockstep.base.errors import ExpectedError
from lockstep.launch.disk import write_error
from lockstep.launch.failure import timeout_text
from lockstep.launch.topology import RankContext
from lockstep.plan.world import World

POLL_INTERVAL = 0.005
HINT = "hydra.run.dir=FOLDER in another folder, of yours"


def create_shared(path: Path) -> None:
    """Create the file where the ranks of an external launcher meet, for this user alone; another rank may have done so.

    A group of an earlier command may have left it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise write_error(path.parent, error) from None
    status = os.fstat(descriptor)
    os.close(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise config_error("hydra.run.dir", path.parent, f"{path} is no plain file that you alone may write to", HINT)


def join(world: World, context: RankContext, path: Path) -> Store:
    """Return the store of the group, once every rank has joined; raise if the ranks of another job meet there, too.

    Each rank writes a new nonce; the nonces of all ranks name the group, so nothing that an earlier one left counts.
    """
    deadline = time.monotonic() + world.process_group.timeout
    store = keep_alive(FileStore(str(path)))  # its destructor aborts the process if the file is gone
    store.set_timeout(timedelta(seconds=world.process_group.timeout))
    keys, group = [f"rank {rank}" for rank in range(context.world_size)], store
    nonce = secrets.token_hex()
    store.set(keys[context.rank], nonce)
    while time.monotonic() < deadline:
        if store.check(keys):
            nonces = [store.get(key).decode() for key in keys]
            if nonces[context.rank] != nonce:
                reason = f"the ranks of another job meet at {path}, too"
                raise config_error("hydra.run.dir", path.parent, reason, f"{HINT}, or set another MASTER_PORT")
            group = PrefixStore(hashlib.sha256(" ".join(nonces).encode()).hexdigest(), store)
            if not group.check([keys[context.rank]]):
                group.set(keys[context.rank], "")
            if group.check(keys):
                return keep_alive(group)
        time.sleep(POLL_INTERVAL * context.world_size)
    absent = [str(rank) for rank, key in enumerate(keys) if not group.check([key])]
    names = f"rank{'s' if len(absent) > 1 else ''} {', '.join(absent)} of {context.world_size}"
    hint = "; hydra.run.dir=FOLDER has to lie on a disk that all machines share" if world.num_nodes > 1 else ""
    raise ExpectedError(f"{names} did not join within {timeout_text(world)}{hint}")


def keep_alive(store: Store) -> Store:
    """Keep a store until the process ends: torch's threads may use it after Python's last reference is gone."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))
    return store


def interface_towards(host: str) -> str | None:
    """Return the interface with this machine's source address for packets to `host`, or None.

    If that is loopback, return the only other interface if there is exactly one. By default gloo and nccl take the
    address that the machine's own name resolves to, often loopback or none.
    """
    by_address = {
        entry.address: name
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family == socket.AF_INET and not entry.address.startswith("127.")
    }
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # any port: nothing is sent
        source, names = probe.getsockname()[0], {*by_address.values()}
        return names.pop() if source.startswith("127.") and len(names) == 1 else by_address.get(source)
    return None
