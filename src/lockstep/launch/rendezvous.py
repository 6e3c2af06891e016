"""Where the ranks of a process group rendezvous: on one machine at a file that only its owner can access.

`init_method` names torch's three ways, file://, env:// (MASTER_ADDR and MASTER_PORT) and tcp://. Left to itself torch
lets rank 0 open the port on every interface of the machine, and all ranks believe whoever writes there. Here a port is
opened only where ranks were started from outside, who know nothing else of each other; see invitation.py.
"""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from lockstep.config_error import config_error, require
from lockstep.launch.invitation import invited
from lockstep.launch.store import KEY, Rendezvous
from lockstep.launch.topology import RankContext
from lockstep.launch.torchelastic_agent import agent_hosts_store
from lockstep.world import World

LOOPBACK = "127.0.0.1"
ANY_FREE = 0


@contextmanager
def open_rendezvous(world: World, folder: Path) -> Iterator[Rendezvous]:
    """The rendezvous of ranks that this process is about to start: a file in the job's folder, or the user's own.

    With env and tcp, too. MASTER_ADDR and MASTER_PORT are then set for code that reads them,
    and nobody listens there, so that rank 0 can.

    Raises:
        ConfigError: the file cannot be used, or the port could not be opened.
    """
    way = world.process_group.init_method
    if world.distributed and way.startswith("file://"):
        path = _file(way)
        if os.path.lexists(path):
            plain = stat.S_ISREG(path.lstat().st_mode)
            why = "the file is there already, from an earlier rendezvous" if plain else "it is no plain file"
            raise config_error(KEY, way, why, INSTEAD)
        with _removed_at_the_end(claimed(path, way)):
            yield Rendezvous(path=str(path))
    elif not world.distributed or way in ("auto", "file"):
        yield Rendezvous(path=str(folder / "group"))
    else:
        host, port = _address(way)
        with _listening(host, port) as door:
            port = door.getsockname()[1]
        yield Rendezvous(str(folder / "group"), host, port)


@contextmanager
def open_external_rendezvous(world: World, context: RankContext) -> Iterator[Rendezvous]:
    """The rendezvous of ranks that an external launcher started, which set MASTER_ADDR and MASTER_PORT.

    Raises:
        RendezvousTimeout: nobody answers there.
        ConfigError: as above, or there is no place for what the ranks prove themselves by.
    """
    way = world.process_group.init_method
    if not world.distributed:
        yield Rendezvous()
    elif way.startswith("file://"):
        path = claimed(_file(way), way)
        with _removed_at_the_end(path) if context.rank == 0 else nullcontext():
            yield Rendezvous(path=str(path))
    else:
        if way == "file" and world.num_nodes > 1:
            raise config_error(
                KEY, "file", "ranks on several machines share no private file", f"{KEY}=file:///SHARED/PATH"
            )
        with _door(world, context, way) as door, invited(world, context, door) as rendezvous:
            yield rendezvous


@contextmanager
def _door(world: World, context: RankContext, way: str) -> Iterator[Rendezvous]:
    """A store at a port: rank 0 hosts it, unless torchrun's agent does."""
    one_machine = world.num_nodes == 1
    agent_hosts = agent_hosts_store() and not way.startswith("tcp://")
    host, port = _address(way)
    if one_machine and not agent_hosts and not way.startswith("tcp://"):
        host = LOOPBACK
    if context.rank == 0 and not agent_hosts:
        with _hosted(host, port, everywhere=not one_machine):
            yield Rendezvous(address=host, port=port)
    else:
        yield Rendezvous(address=host, port=port)


@contextmanager
def _hosted(host: str, port: int, everywhere: bool) -> Iterator[TCPStore]:
    """A store of this process at one of the machine's addresses, or at all of them."""
    listener = _listening(host, port, everywhere)
    port = listener.getsockname()[1]
    store = TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    yield store


def _listening(host: str, port: int, everywhere: bool = False) -> socket.socket:
    try:
        return socket.create_server(("" if everywhere else host, port))
    except OSError as error:
        why = f"this machine cannot open it ({error.strerror})"
        raise config_error(KEY, f"tcp://{host}:{port}", why, f"{KEY}=auto, or another address or port") from None


@contextmanager
def _removed_at_the_end(path: Path) -> Iterator[None]:
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


INSTEAD = f"{KEY}=file, or a new file in a folder of yours"


def _file(url: str) -> Path:
    path = Path(url.removeprefix("file://"))
    require(path.parent.is_dir(), KEY, url, "its folder does not exist", f"{KEY}=file, or a file in a folder that does")
    return path


def claimed(path: Path, way: str) -> Path:
    """Make the file for this user alone, unless another rank has done so.

    Raises:
        ConfigError: it cannot be made, or is something else.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        return path
    except FileExistsError:
        about = path.lstat()
    except OSError as error:
        raise config_error(KEY, way, f"the file cannot be made ({error.strerror})", INSTEAD) from None
    require(stat.S_ISREG(about.st_mode), KEY, way, "it is no plain file", INSTEAD)
    own = about.st_uid == os.geteuid() and not about.st_mode & 0o022
    require(own, KEY, way, "other users own the file, or may write to it", INSTEAD)
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
