"""Open the rendezvous of ranks that this command starts, and the files and ports that `init_method` names."""

import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from lockstep.config_error import config_error, require
from lockstep.errors import RendezvousTimeout
from lockstep.launch.peers import timeout_text
from lockstep.launch.rendezvous import KEY, Rendezvous, keep_alive
from lockstep.launch.signed_store import SignedStore, compute_hmac
from lockstep.launch.topology import RankContext
from lockstep.world import World

OTHER_FILE = f"{KEY}=file, or a new file in a folder of yours"
LOOPBACK = "127.0.0.1"
ANY_FREE = "0"
RETRY = 0.1
"""Seconds between two attempts to connect; an attempt itself may take ten times as long."""


@dataclass(frozen=True)
class PortRendezvous(Rendezvous):
    """A rendezvous at `address` and `port`, where values are signed with `secret`."""

    secret: bytes = field(default=b"", repr=False)

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
            restarts = "0" if agent_hosts_store() else os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            return self.of_attempt(TCPStore(self.address, self.port, is_master=False), world, restarts)
        raise RendezvousTimeout(f"nobody answered at {self} within {timeout_text(world)}; is rank 0 running?")

    def group_store(self, store: Store, world: World) -> Store:
        """Return a signed view of the store: an agent's may hold keys of earlier ranks."""
        group = PrefixStore(compute_hmac(self.secret, b"group").decode(), store)
        return keep_alive(SignedStore(group, self.secret, timedelta(seconds=world.process_group.timeout)))


@contextmanager
def open_rendezvous(world: World, folder: Path) -> Iterator[Rendezvous]:
    """Open the rendezvous of ranks that this process is about to start: a file in the job's folder, or the user's.

    With env and tcp, too: MASTER_ADDR and MASTER_PORT are set for code that reads them, and the port is left free for
    rank 0.

    Raises:
        ConfigError: the file cannot be used, or the port could not be opened.
    """
    url = world.process_group.init_method
    if world.distributed and url.startswith("file://"):
        with users_file(url, create=True, remove=True) as rendezvous:
            yield rendezvous
    elif not world.distributed or url in ("auto", "file"):
        yield Rendezvous(path=str(folder / "group"))
    else:
        host, port = address_of(url)
        with listen(host, port) as listener:
            port = listener.getsockname()[1]
        yield Rendezvous(str(folder / "group"), host, port)


@contextmanager
def users_file(url: str, create: bool, remove: bool) -> Iterator[Rendezvous]:
    """Use a file that the user names, for this user alone. `create`: it must not exist; else another rank may be first.

    Raises:
        ConfigError: it cannot be created, or is something else.
    """
    path = Path(url.removeprefix("file://"))
    require(path.parent.is_dir(), KEY, url, "its folder does not exist", f"{KEY}=file, or a file in a folder that does")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        status = path.lstat()
        require(not create, KEY, url, "it exists already, from an earlier rendezvous, say", OTHER_FILE)
        private = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
        require(private, KEY, url, "it is no plain file that you alone may write to", OTHER_FILE)
    except OSError as error:
        raise config_error(KEY, url, f"the file cannot be made ({error.strerror})", OTHER_FILE) from None
    try:
        yield Rendezvous(path=str(path))
    finally:
        if remove:
            path.unlink(missing_ok=True)


@contextmanager
def users_port(world: World, context: RankContext) -> Iterator[PortRendezvous]:
    """Use MASTER_ADDR and MASTER_PORT, or the port of tcp://: rank 0 hosts the store, unless torchrun's agent does.

    Ranks on one machine use loopback, unless agent or tcp:// name another address.
    """
    url, one_machine = world.process_group.init_method, world.num_nodes == 1
    host, port = address_of(url)
    agent_hosts = agent_hosts_store() and not url.startswith("tcp://")
    if one_machine and not agent_hosts and not url.startswith("tcp://"):
        host = LOOPBACK
    if context.rank == 0 and not agent_hosts:
        listener = listen(host, port, all_interfaces=not one_machine)
        port = listener.getsockname()[1]
        hosted = TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
        yield PortRendezvous(address=host, port=port)
        del hosted  # which listens until here
    else:
        yield PortRendezvous(address=host, port=port)


def listen(host: str, port: int, all_interfaces: bool = False) -> socket.socket:
    """Return a listening socket.

    Raises:
        ConfigError: the port cannot be opened.
    """
    try:
        return socket.create_server(("" if all_interfaces else host, port))
    except OSError as error:
        reason = f"this machine cannot open it ({error.strerror})"
        raise config_error(KEY, f"tcp://{host}:{port}", reason, f"{KEY}=auto, or another address or port") from None


def address_of(url: str) -> tuple[str, int]:
    """Return host and port of tcp://HOST:PORT; otherwise what env:// reads, or any free port of loopback."""
    if url.startswith("tcp://"):
        host, port = url.removeprefix("tcp://").rsplit(":", 1)
        return host, int(port)
    port = os.environ.get("MASTER_PORT", ANY_FREE)
    is_port = port.isdecimal() and int(port) < 2**16
    require(is_port, "MASTER_PORT", port, "this environment variable takes a port", "MASTER_PORT=29500, or unset it")
    return os.environ.get("MASTER_ADDR", LOOPBACK), int(port)


def agent_hosts_store() -> bool:
    """Whether the store at MASTER_PORT is that of torchrun's agent. It may hold keys of earlier ranks."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
