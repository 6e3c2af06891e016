"""Where the ranks of a group meet: at a file, or at a store behind a port that one process opens for all of them.

The three ways of torch's `init_method`, file://, env:// (MASTER_ADDR and MASTER_PORT) and tcp://. Left to itself torch
lets rank 0 open the port on every interface of the machine, to whoever comes. Here it is opened where it is needed: on
loopback, unless ranks on other machines have to reach it.
"""

import ctypes
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from torch.distributed import (  # type: ignore[attr-defined]
    FileStore,
    PrefixStore,
    Store,
    TCPStore,
)

from lockstep.launch.failure import NotJoined
from lockstep.launch.place import Place
from lockstep.refusal import refuse
from lockstep.world import World

KEY = "process_group.init_method"
LOOPBACK = "127.0.0.1"
ANY_FREE = 0
LOOK = 0.005
"""Seconds between two looks at who is here: `store.wait` would print C++ warnings when its time is over."""
RETRY = 0.1
"""Seconds between two knocks at a door that is not open yet; a knock itself may take ten times as long."""


@dataclass(frozen=True)
class Meeting:
    """A file, or an address and a port."""

    path: str = ""
    address: str = ""
    port: int = 0

    def __str__(self) -> str:
        return self.path or f"{self.address}:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """What env:// reads."""
        return {"MASTER_ADDR": self.address, "MASTER_PORT": str(self.port)} if self.port else {}


@contextmanager
def opened(world: World, folder: Path) -> Iterator[Meeting]:
    """The meeting place of ranks that this process is about to start. It hosts the store, so that no port is a guess.

    Raises:
        Refusal: the file is there already, or the port cannot be opened.
    """
    way = world.process_group.init_method
    if not world.joined or way in ("auto", "file"):
        yield Meeting(path=str(folder / "group"))
    elif way.startswith("file://"):
        yield Meeting(path=_fresh_file(way))
    else:
        host, port = (LOOPBACK, ANY_FREE) if way == "env" else _address(way)
        with _hosted(host, port) as store:
            yield Meeting(address=host, port=store.port)


@contextmanager
def opened_outside(world: World, place: Place) -> Iterator[Meeting]:
    """The meeting place of ranks that torchrun or SLURM started, who set MASTER_ADDR and MASTER_PORT.

    Rank 0 hosts the store, unless torchrun's agent does.
    """
    way = world.process_group.init_method
    if not world.joined or way.startswith("file://"):
        path = Path(way.removeprefix("file://"))
        yield Meeting(path=str(path))
        if place.rank == 0:
            path.unlink(missing_ok=True)
        return
    one_machine = world.num_nodes == 1
    agent_hosts = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and not way.startswith("tcp://")
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if way.startswith("tcp://"):
        host, port = _address(way)
    elif one_machine and not agent_hosts:
        host = LOOPBACK
    with ExitStack() as until_the_end:
        if place.rank == 0 and not agent_hosts:
            until_the_end.enter_context(_hosted(host, port, everywhere=not one_machine))
        meeting = Meeting(address=host, port=port)
        yield until_the_end.enter_context(_private_file(world, place, meeting)) if way == "file" else meeting


def join(world: World, place: Place, meeting: Meeting) -> Store:
    """The store at the meeting place, once every rank has come there.

    Raises:
        NotJoined: some did not within the time that the process group has; they are named.
    """
    store = _store(world, place, meeting)
    keys = {rank: f"rank {rank} is here" for rank in range(place.world_size)}
    if store.check([keys[place.rank]]):
        raise NotJoined(f"{meeting} is left from an earlier meeting; remove it ({KEY})")
    store.set(keys[place.rank], "")
    deadline = time.monotonic() + world.process_group.timeout
    while missing := [str(rank) for rank, key in keys.items() if not store.check([key])]:
        if time.monotonic() > deadline:
            named = f"rank{'s' if len(missing) > 1 else ''} {', '.join(missing)} of {place.world_size}"
            raise NotJoined(f"{named} did not join within {_limit(world)}")
        time.sleep(LOOK)
    return store


def _store(world: World, place: Place, meeting: Meeting) -> Store:
    timeout = timedelta(seconds=world.process_group.timeout)
    if meeting.path:
        found: Store = FileStore(meeting.path)
        # Its destructor writes to the file, and aborts the process if a peer that was quicker has removed it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))
    else:
        _wait_for_host(world, meeting)
        found = TCPStore(meeting.address, meeting.port, is_master=False, timeout=timeout)
    found.set_timeout(timeout)
    return PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", found)


def _wait_for_host(world: World, meeting: Meeting) -> None:
    """torch would wait too, and print a page of C++ frames for each time it asked."""
    deadline = time.monotonic() + world.process_group.timeout
    while time.monotonic() < deadline:
        try:
            socket.create_connection((meeting.address, meeting.port), timeout=10 * RETRY).close()
            return
        except OSError:
            time.sleep(RETRY)
    raise NotJoined(f"nobody answered at {meeting} within {_limit(world)}; is rank 0 running?")


@contextmanager
def _hosted(host: str, port: int, everywhere: bool = False) -> Iterator[TCPStore]:
    """A store of this process at one of the machine's addresses, or at all of them."""
    try:
        listener = socket.create_server(("" if everywhere else host, port))
    except OSError as error:
        why = f"this machine cannot open it ({error.strerror})"
        raise refuse(KEY, f"tcp://{host}:{port}", why, f"{KEY}=auto, or another address or port") from None
    port = listener.getsockname()[1]
    store = TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    yield store


@contextmanager
def _private_file(world: World, place: Place, meeting: Meeting) -> Iterator[Meeting]:
    """A new file of rank 0, who tells the others its path at the place where they would have met without it."""
    if world.num_nodes > 1:
        raise refuse(KEY, "file", "ranks on several machines share no private file", f"{KEY}=file:///SHARED/PATH")
    store = _store(world, place, meeting)
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        if place.rank == 0:
            store.set("file", f"{folder}/group")
        yield Meeting(path=store.get("file").decode())


def _fresh_file(url: str) -> str:
    path = Path(url.removeprefix("file://"))
    if path.exists():
        raise refuse(KEY, url, "the file is there already, from an earlier meeting", f"{KEY}=file, or a new name")
    if not path.parent.is_dir():
        raise refuse(KEY, url, "its folder does not exist", f"{KEY}=file, or a file in a folder that does")
    return str(path)


def _address(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("tcp://").rsplit(":", 1)
    return host, int(port)


def _limit(world: World) -> str:
    return f"{world.process_group.timeout:g} s (process_group.timeout)"
