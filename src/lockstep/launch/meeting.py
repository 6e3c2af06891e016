"""Where the ranks of a group meet: at a file, or at a store behind a port that one process opens for all of them.

The three ways of torch's `init_method`, file://, env:// (MASTER_ADDR and MASTER_PORT) and tcp://. Left to itself torch
lets rank 0 open the port on every interface of the machine, to whoever comes. Here it is opened where it is needed: on
loopback, unless ranks on other machines have to reach it.
"""

import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from lockstep.ending import NotJoined
from lockstep.launch.agent import hosts_store
from lockstep.launch.place import Place
from lockstep.launch.store import KEY, Meeting, awaited, find_store, limit
from lockstep.refusal import refuse, require
from lockstep.world import World

LOOPBACK = "127.0.0.1"
ANY_FREE = 0


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
        path = _file(way)
        require(not path.exists(), KEY, way, "the file is there already, from an earlier meeting", f"{KEY}=file")
        with _removed_at_the_end(path):
            yield Meeting(path=str(path))
    else:
        host, port = _address(way)
        with _hosted(host, port) as store:
            yield Meeting(address=host, port=store.port)


@contextmanager
def opened_outside(world: World, place: Place) -> Iterator[Meeting]:
    """The meeting place of ranks that torchrun or SLURM started, who set MASTER_ADDR and MASTER_PORT.

    Rank 0 hosts the store, unless torchrun's agent does.
    """
    way = world.process_group.init_method
    if not world.joined:
        yield Meeting()
    elif way.startswith("file://"):
        path = _file(way)
        with _removed_at_the_end(path) if place.rank == 0 else nullcontext():
            yield Meeting(path=str(path))
    else:
        with _hosted_by_rank_zero(world, place, way) as meeting:
            if way != "file":
                yield meeting
            else:
                with _private_file(world, place, meeting) as file:
                    yield file


@contextmanager
def _hosted_by_rank_zero(world: World, place: Place, way: str) -> Iterator[Meeting]:
    one_machine = world.num_nodes == 1
    agent_hosts = hosts_store() and not way.startswith("tcp://")
    host, port = _address(way)
    if one_machine and not agent_hosts and not way.startswith("tcp://"):
        host = LOOPBACK
    if place.rank == 0 and not agent_hosts:
        with _hosted(host, port, everywhere=not one_machine):
            yield Meeting(address=host, port=port)
    else:
        yield Meeting(address=host, port=port)


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
    deadline = time.monotonic() + world.process_group.timeout
    store = find_store(world, place, meeting, deadline)
    if place.rank == 0:
        with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
            store.set("file", f"{folder}/group")
            yield Meeting(path=f"{folder}/group")
        return
    if awaited(store, ["file"], deadline):
        raise NotJoined(f"rank 0 told nobody where to meet within {limit(world)}")
    yield Meeting(path=store.get("file").decode())


@contextmanager
def _removed_at_the_end(path: Path) -> Iterator[None]:
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _file(url: str) -> Path:
    path = Path(url.removeprefix("file://"))
    why = "its folder does not exist"
    require(path.parent.is_dir(), KEY, url, why, f"{KEY}=file, or a file in a folder that does")
    return path


def _address(way: str) -> tuple[str, int]:
    """Of tcp://HOST:PORT; otherwise what env:// reads, or any free port of loopback."""
    if way.startswith("tcp://"):
        host, port = way.removeprefix("tcp://").rsplit(":", 1)
        return host, int(port)
    port = os.environ.get("MASTER_PORT", str(ANY_FREE))
    fits = port.isdecimal() and int(port) < 2**16
    require(fits, "MASTER_PORT", port, "this environment variable takes a port", "MASTER_PORT=29500, or unset it")
    return os.environ.get("MASTER_ADDR", LOOPBACK), int(port)
