"""The rendezvous of the ranks of a process group, at a store in a file or at a port, and the wait until all joined.

`init_method` names torch's three ways, file://, env:// (MASTER_ADDR and MASTER_PORT) and tcp://. By default torch lets
rank 0 open the port on every interface of the machine, and all ranks trust what anybody writes there. Ranks that the
command starts use a file that only its owner can access; for the others see external_rendezvous.py.
"""

import os
import socket
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from torch.distributed import FileStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from lockstep.config_error import config_error, require
from lockstep.errors import RendezvousTimeout
from lockstep.launch.peers import publish_pid, timeout_text
from lockstep.launch.signed_store import POLL_INTERVAL, SignedStore, hmac_of, keep_alive
from lockstep.launch.topology import RankContext
from lockstep.launch.torchelastic_agent import agent_hosts_store
from lockstep.world import World

KEY = "process_group.init_method"
INSTEAD = f"{KEY}=file, or a new file in a folder of yours"
LOOPBACK = "127.0.0.1"
ANY_FREE = 0
RETRY = 0.1
"""Seconds between two attempts to connect; an attempt itself may take ten times as long."""


def no_action() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Rendezvous:
    """A file, which is its owner's alone, or an address and a port, where values are signed with `secret`.

    Beside a file the address is only what MASTER_ADDR and MASTER_PORT say. `while_waiting` is called while ranks are
    missing, and `when_joined` when all have joined.
    """

    path: str = ""
    address: str = ""
    port: int = 0
    secret: bytes = field(default=b"", repr=False)
    while_waiting: Callable[[], None] = no_action
    when_joined: Callable[[], None] = no_action

    def __str__(self) -> str:
        return self.path or f"{self.address}:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """What env:// reads."""
        return {"MASTER_ADDR": self.address, "MASTER_PORT": str(self.port)} if self.port else {}


@contextmanager
def open_rendezvous(world: World, folder: Path) -> Iterator[Rendezvous]:
    """The rendezvous of ranks that this process is about to start: a file in the job's folder, or the user's own.

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
    """At a file that the user names, for this user alone. `create`: it must not exist; else another rank may be first.

    Raises:
        ConfigError: it cannot be created, or is something else.
    """
    path = Path(url.removeprefix("file://"))
    require(path.parent.is_dir(), KEY, url, "its folder does not exist", f"{KEY}=file, or a file in a folder that does")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        status = path.lstat()
        require(stat.S_ISREG(status.st_mode), KEY, url, "it is no plain file", INSTEAD)
        require(not create, KEY, url, "the file is there already, from an earlier rendezvous", INSTEAD)
        own = status.st_uid == os.geteuid() and not status.st_mode & 0o022
        require(own, KEY, url, "other users own the file, or may write to it", INSTEAD)
    except OSError as error:
        raise config_error(KEY, url, f"the file cannot be made ({error.strerror})", INSTEAD) from None
    try:
        yield Rendezvous(path=str(path))
    finally:
        if remove:
            path.unlink(missing_ok=True)


@contextmanager
def users_port(world: World, context: RankContext) -> Iterator[Rendezvous]:
    """At MASTER_ADDR and MASTER_PORT, or as tcp:// names them: rank 0 hosts the store, unless torchrun's agent does.

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
        yield Rendezvous(address=host, port=port)
        del hosted  # which listens until here
    else:
        yield Rendezvous(address=host, port=port)


def listen(host: str, port: int, all_interfaces: bool = False) -> socket.socket:
    """A listening socket.

    Raises:
        ConfigError: the port cannot be opened.
    """
    try:
        return socket.create_server(("" if all_interfaces else host, port))
    except OSError as error:
        why = f"this machine cannot open it ({error.strerror})"
        raise config_error(KEY, f"tcp://{host}:{port}", why, f"{KEY}=auto, or another address or port") from None


def address_of(url: str) -> tuple[str, int]:
    """Host and port of tcp://HOST:PORT; otherwise what env:// reads, or any free port of loopback."""
    if url.startswith("tcp://"):
        host, port = url.removeprefix("tcp://").rsplit(":", 1)
        return host, int(port)
    port = os.environ.get("MASTER_PORT", str(ANY_FREE))
    fits = port.isdecimal() and int(port) < 2**16
    require(fits, "MASTER_PORT", port, "this environment variable takes a port", "MASTER_PORT=29500, or unset it")
    return os.environ.get("MASTER_ADDR", LOOPBACK), int(port)


def join(world: World, context: RankContext, rendezvous: Rendezvous) -> Store:
    """The store of the rendezvous, once every rank has joined.

    Raises:
        RendezvousTimeout: some did not within the timeout of the process group; they are named.
    """
    deadline = time.monotonic() + world.process_group.timeout
    store = connect(world, rendezvous, deadline)
    if not rendezvous.path:
        group = hmac_of(rendezvous.secret, b"group").decode()  # an agent's store may hold keys of earlier ranks
        timeout = timedelta(seconds=world.process_group.timeout)
        store = keep_alive(SignedStore(PrefixStore(group, store), rendezvous.secret, timeout))
    keys = {rank: f"rank {rank} has joined" for rank in range(context.world_size)}
    if store.check([keys[context.rank]]):
        raise RendezvousTimeout(f"an earlier group has used {rendezvous}; remove it, or write {KEY}=file")
    publish_pid(store, context)
    store.set(keys[context.rank], "")
    if missing := wait_for_keys(store, [*keys.values()], deadline, rendezvous.while_waiting):
        absent = [str(rank) for rank, key in keys.items() if key in missing]
        named = f"rank{'s' if len(absent) > 1 else ''} {', '.join(absent)} of {context.world_size}"
        raise RendezvousTimeout(f"{named} did not join within {timeout_text(world)}")
    rendezvous.when_joined()
    return store


def wait_for_keys(store: Store, keys: Sequence[str], deadline: float, while_waiting: Callable[[], None]) -> list[str]:
    """Wait for keys; returns those that are missing at the deadline."""
    while_waiting()
    while missing := [key for key in keys if not store.check([key])]:
        if time.monotonic() > deadline:
            return missing
        time.sleep(POLL_INTERVAL)
        while_waiting()
    return []


def connect(world: World, rendezvous: Rendezvous, deadline: float) -> Store:
    """The store in a file or at a port; at a port anybody may write.

    Raises:
        RendezvousTimeout: nobody listens at the port.
    """
    if rendezvous.path:
        # its destructor writes to the file, and aborts the process if a faster peer has removed the file
        store = keep_alive(FileStore(rendezvous.path))
    else:
        _wait_for_listener(world, rendezvous, deadline)
        store = TCPStore(rendezvous.address, rendezvous.port, is_master=False)
    store.set_timeout(timedelta(seconds=world.process_group.timeout))
    restarts = 0 if not rendezvous.path and agent_hosts_store() else os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)
    return PrefixStore(f"start {restarts}", store)


def _wait_for_listener(world: World, rendezvous: Rendezvous, deadline: float) -> None:
    """torch would wait too, but prints a page of C++ frames for each attempt."""
    while time.monotonic() < deadline:
        try:
            socket.create_connection((rendezvous.address, rendezvous.port), timeout=10 * RETRY).close()
            return
        except OSError:
            time.sleep(RETRY)
    raise RendezvousTimeout(f"nobody answered at {rendezvous} within {timeout_text(world)}; is rank 0 running?")
