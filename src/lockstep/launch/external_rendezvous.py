"""The rendezvous of ranks that torchrun, SLURM or mpirun started: they share a port, to which anybody may write.

All ranks read one key from a file that only their user can read. It lies beside the run's folder, on several machines
on the disk that they share. Each rank writes a new nonce to the store; the key and the nonces of all ranks give the
secret with which every other value is signed (signed_store.py). So another user who writes to the port can keep the
ranks from meeting, and do nothing else: values of an earlier run do not fit new nonces.
"""

import os
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from lockstep.config_error import config_error
from lockstep.disk import write_error
from lockstep.errors import RendezvousTimeout
from lockstep.launch.open_rendezvous import LOOPBACK, address_of, listen, users_file
from lockstep.launch.rendezvous import KEY, Rendezvous, keep_alive
from lockstep.launch.signed_store import SignedStore, compute_hmac
from lockstep.launch.timeouts import timeout_text
from lockstep.launch.topology import RankContext
from lockstep.world import World

KEY_HEADER = b"key of Lockstep's ranks\n"
"""Stands before the digits, so that no other file of the user's is read as a key."""
KEY_BYTES = len(KEY_HEADER) + 64
RETRY = 0.1
"""Seconds between two attempts to connect; an attempt itself may take ten times as long."""


@dataclass(frozen=True)
class PortRendezvous(Rendezvous):
    """A rendezvous at `address` and `port`, with the key of this user and the nonce of this rank."""

    key: bytes = field(default=b"", repr=False)
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"

    def connect(self, world: World, deadline: float) -> Store:
        """Return the store, to which anybody may write.

        Raises:
            RendezvousTimeout: nobody listens at the port.
        """
        while time.monotonic() < deadline:  # torch would wait too, but prints a page of C++ frames for each attempt
            try:
                socket.create_connection((self.address, self.port), timeout=10 * RETRY).close()
            except OSError:
                time.sleep(RETRY)
                continue
            return TCPStore(self.address, self.port, is_master=False)
        raise RendezvousTimeout(f"nobody answered at {self} within {timeout_text(world)}; is rank 0 running?")

    def group_store(self, store: Store, world: World, context: RankContext) -> Store:
        """Return a signed view of the store for the ranks whose nonces it has now."""
        names = [f"nonce of rank {rank}" for rank in range(context.world_size)]
        store.set(names[context.rank], self.nonce)  # again: the store of torchrun's agent may have an earlier rank's
        nonces = [store.get(name) if store.check([name]) else b"" for name in names]
        nonces[context.rank] = self.nonce.encode()
        secret = compute_hmac(self.key, *nonces)
        group = PrefixStore(compute_hmac(secret, b"group").decode(), store)
        return SignedStore(group, secret, timedelta(seconds=world.process_group.timeout))


@contextmanager
def open_external_rendezvous(world: World, context: RankContext) -> Iterator[Rendezvous]:
    """Open the rendezvous of ranks that an external launcher started, which set MASTER_ADDR and MASTER_PORT.

    Raises:
        ConfigError: the file or port cannot be used, or the key cannot be read or written.
    """
    url = world.process_group.init_method
    if not world.distributed:
        yield Rendezvous()
    elif url.startswith("file://"):
        with users_file(url, create=False, remove=context.rank == 0) as rendezvous:
            yield rendezvous
    else:
        key = read_key(Path(world.folder).parent)
        host, port = users_port(world, context)
        yield PortRendezvous(address=host, port=port, key=key)


def users_port(world: World, context: RankContext) -> tuple[str, int]:
    """Return the address of the store, which rank 0 hosts unless torchrun's agent does.

    Ranks on one machine use loopback, unless agent or tcp:// name another address.
    """
    url, one_machine = world.process_group.init_method, world.num_nodes == 1
    host, port = address_of(url)
    agent_hosts = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and not url.startswith("tcp://")
    if one_machine and not agent_hosts and not url.startswith("tcp://"):
        host = LOOPBACK
    if context.rank == 0 and not agent_hosts:
        listener = listen(host, port, all_interfaces=not one_machine)
        port = listener.getsockname()[1]
        descriptor = listener.detach()
        keep_alive(TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=descriptor))
    return host, port


def read_key(folder: Path) -> bytes:
    """Return this user's key in a folder, which the first rank creates.

    Raises:
        ConfigError: it cannot be written, or is another kind of file.
    """
    path = folder / f".lockstep-key-{os.geteuid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            create_key(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise write_error(str(folder), error) from None
    try:
        status = os.fstat(descriptor)
        private = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
        content = os.read(descriptor, KEY_BYTES + 1) if private else b""
    finally:
        os.close(descriptor)
    if len(content) != KEY_BYTES or not content.startswith(KEY_HEADER):
        raise config_error(KEY, "env", f"{path} is no key that you alone can read", f"rm {path}")
    return content


def create_key(path: Path) -> None:
    """Write a new key, unless another rank was faster."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(KEY_HEADER + secrets.token_hex(32).encode())
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        Path(temporary).unlink()
