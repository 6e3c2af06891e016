"""Find what a command exposes to others while it runs: its sockets, and its temporary files."""

import contextlib
import os
import socket
import subprocess
import time
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any

import psutil

PAUSE = 0.03
"""Seconds between two looks."""


@dataclass
class Watched:
    """What was seen of a command at any time.

    private, open: the addresses of its sockets that others cannot reach, or can.
    files, exposed: the names of all files in the temporary folder, and of those that others can read.
    """

    private: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    exposed: set[str] = field(default_factory=set)
    looks: int = 0


def watch(process: "subprocess.Popen[str]", temporary: Path) -> Watched:
    """Look again and again until a command ends."""
    watched = Watched()
    while process.poll() is None:
        watched.looks += 1
        for pid in tree(process.pid):
            with contextlib.suppress(psutil.Error, OSError):
                for connection in psutil.Process(pid).net_connections("all"):
                    if address := accepting_address(connection):
                        (watched.private if is_private(address) else watched.open).add(address)
        names = {path.name for path in temporary.iterdir()}
        watched.files |= names
        watched.exposed |= {name for name in names if not is_owners(temporary / name)}
        time.sleep(PAUSE)
    return watched


def accepting_address(connection: Any) -> str:
    """Return the address of a socket that accepts anyone, or "": a connected one hears its peer alone.

    That of a unix socket is a path, which begins with @ if it is abstract.
    """
    if connection.family == socket.AF_UNIX:
        return str(connection.laddr)
    accepts_datagrams = connection.type == socket.SOCK_DGRAM and not connection.raddr
    return str(connection.laddr.ip) if connection.status == psutil.CONN_LISTEN or accepts_datagrams else ""


def is_private(address: str) -> bool:
    """Whether neither other machines nor, by a unix socket, other users of this one can reach an address."""
    if address.startswith(("/", "@")):
        return address.startswith("/") and is_owners(Path(address).parent)
    ip = ip_address(address)
    return ((ip.ipv4_mapped if isinstance(ip, IPv6Address) else None) or ip).is_loopback


def is_owners(path: Path) -> bool:
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
