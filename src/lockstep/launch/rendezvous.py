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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import psutil
from torch.distributed import FileStore, PrefixStore, Store  # type: ignore[attr-defined]

from lockstep.base.config_error import config_error, require
from lockstep.base.disk import write_error
from lockstep.base.errors import ExpectedError
from lockstep.launch.failure import timeout_text
from lockstep.launch.topology import RankContext
from lockstep.plan.world import World

KEY = "process_group.init_method"
OTHER_FILE = f"{KEY}=file:///FOLDER/FILE, a new file in a folder of yours"
POLL_INTERVAL = 0.005


@contextmanager
def group_file(world: World, default: Path, context: RankContext | None = None) -> Iterator[Path]:
    """Create the file at which the ranks meet, for this user alone: `default`, or the one that `init_method` names.

    context: this process as a rank of an external launcher: another rank may have created the file. Otherwise it must
        not exist, and is removed.
    """
    url = world.process_group.init_method
    is_named = world.distributed and url.startswith("file://")
    path = Path(url.removeprefix("file://")) if is_named else default
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_EXCL if context is None else 0)
    try:
        default.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if not is_named:
            raise write_error(path.parent, error) from None
        raise config_error(KEY, url, f"{path} cannot be created ({error.strerror})", OTHER_FILE) from None
    status = os.fstat(descriptor)
    os.close(descriptor)
    private = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
    require(private, KEY, url, f"{path} is no plain file that you alone may write to", OTHER_FILE)
    try:
        yield path
    finally:
        if context is None:
            path.unlink(missing_ok=True)


def master_variables(world: World) -> dict[str, str]:
    """Return MASTER_ADDR and MASTER_PORT, for code that reads them, if `init_method` is env or tcp://HOST:PORT."""
    url = world.process_group.init_method
    if url == "env":
        url = f"tcp://{os.environ.get('MASTER_ADDR', '127.0.0.1')}:{os.environ.get('MASTER_PORT', '0')}"
    if not world.distributed or not url.startswith("tcp://"):
        return {}
    host, _, port = url.removeprefix("tcp://").rpartition(":")
    try:
        with socket.create_server((host, int(port))) as server:
            return {"MASTER_ADDR": host, "MASTER_PORT": str(server.getsockname()[1])}
    except (OSError, OverflowError, ValueError) as error:
        raise config_error(KEY, url, f"this machine cannot open it ({error})", f"{KEY}=auto, or another port") from None


def join(world: World, context: RankContext, path: Path) -> Store:
    """Return the store of the group, once every rank has joined.

    Each rank writes a new nonce; the nonces of all ranks name the group, so nothing that an earlier one left counts.

    Raises:
        ConfigError: the ranks of another job meet there, too.
        ExpectedError: some ranks did not join within the timeout of the process group.
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
            reason = f"the ranks of another job meet at {path}, too"
            require(nonces[context.rank] == nonce, KEY, world.process_group.init_method, reason, OTHER_FILE)
            group = PrefixStore(hashlib.sha256(" ".join(nonces).encode()).hexdigest(), store)
            if not group.check([keys[context.rank]]):
                group.set(keys[context.rank], "")
            if group.check(keys):
                return keep_alive(group)
        time.sleep(POLL_INTERVAL * context.world_size)
    absent = [key.removeprefix("rank ") for key in keys if not group.check([key])]
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
