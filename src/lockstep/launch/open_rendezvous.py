"""Open the rendezvous of ranks that this command starts, and the files and ports that `init_method` names."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lockstep.config_error import config_error, require
from lockstep.launch.rendezvous import KEY, Rendezvous
from lockstep.world import World

OTHER_FILE = f"{KEY}=file, or a new file in a folder of yours"
LOOPBACK = "127.0.0.1"
ANY_FREE = "0"


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
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_EXCL if create else 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise config_error(KEY, url, f"the file cannot be made ({error.strerror})", OTHER_FILE) from None
    status = os.fstat(descriptor)
    os.close(descriptor)
    private = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
    require(private, KEY, url, "it is no plain file that you alone may write to", OTHER_FILE)
    try:
        yield Rendezvous(path=str(path))
    finally:
        if remove:
            path.unlink(missing_ok=True)


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
