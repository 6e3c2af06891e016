"""Find what a command exposes to others while it runs: its sockets, and its temporary files."""

import contextlib
import os
import socket
import stat
import subprocess
import time
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from pathlib import Path

import psutil

PAUSE = 0.03
"""Seconds between two looks."""


@dataclass(frozen=True)
class Endpoint:
    """A socket that others can reach; the address of a unix socket is a path, which begins with @ if it is abstract."""

    protocol: str
    address: str

    @property
    def is_private(self) -> bool:
        """Whether neither other machines nor, by a unix socket, other users of this one can reach it."""
        if self.protocol == "unix":
            return not self.address.startswith("@") and is_private(Path(self.address).parent)
        address = ip_address(self.address)
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return (mapped or address).is_loopback


@dataclass
class Watched:
    """The sockets of a command, and the files in the temporary folder, that were seen at any time."""

    endpoints: set[Endpoint] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    exposed: set[str] = field(default_factory=set)
    looks: int = 0

    @property
    def open(self) -> set[Endpoint]:
        return {endpoint for endpoint in self.endpoints if not endpoint.is_private}


def watch(process: "subprocess.Popen[str]", temporary: Path) -> Watched:
    """Look again and again until a command ends."""
    watched = Watched()
    while process.poll() is None:
        watched.looks += 1
        for pid in tree(process.pid):
            watched.endpoints |= endpoints_of(pid)
        for path in temporary.iterdir():
            watched.files.add(path.name)
            with contextlib.suppress(FileNotFoundError):
                if not is_private(path):
                    watched.exposed.add(f"{path.name} {stat.filemode(path.lstat().st_mode)}")
        time.sleep(PAUSE)
    return watched


def is_private(path: Path) -> bool:
    """Whether only its owner can read a file or folder; also True if it has been removed."""
    try:
        return not path.lstat().st_mode & 0o077
    except FileNotFoundError:
        return True


def tree(root: int) -> list[int]:
    """Return the pids of a process, of its descendants, and of its session, whoever their parents are now."""
    pids = {root}
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(pid) == root:
                pids.add(pid)
    with contextlib.suppress(psutil.NoSuchProcess):
        pids |= {process.pid for process in psutil.Process(root).children(recursive=True)}
    return sorted(pids)


def endpoints_of(pid: int) -> set[Endpoint]:
    """Return the sockets of a process that accept anyone: a connected one hears its peer alone."""
    endpoints = set()
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.Process(pid).net_connections("all"):
            if connection.family == socket.AF_UNIX:
                if connection.laddr:
                    endpoints.add(Endpoint("unix", str(connection.laddr)))
            elif connection.status == psutil.CONN_LISTEN or (
                connection.type == socket.SOCK_DGRAM and not connection.raddr
            ):
                protocol = "tcp" if connection.type == socket.SOCK_STREAM else "udp"
                endpoints.add(Endpoint(protocol + "6" * (connection.family == socket.AF_INET6), connection.laddr.ip))
    return endpoints
