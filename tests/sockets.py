"""What a command leaves open to others while it runs: its sockets, read from /proc, and its temporary files."""

import contextlib
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

LISTENING, UNCONNECTED = "0A", "07"
"""States of sockets to which anybody may speak, of TCP and of UDP: a connected one hears its peer alone."""
ACCEPTS = 0x10000
"""Linux's flag of a unix socket that listens."""
PAUSE = 0.03
"""Seconds between two looks."""


@dataclass(frozen=True)
class Door:
    """A socket that others may come to; of a unix socket `address` is a path, with @ in front if it is in no folder."""

    protocol: str
    address: str
    port: int = 0

    @property
    def closed(self) -> bool:
        """To other machines, and, where it is a unix socket, to other users of this one."""
        if self.protocol == "unix":
            return not self.address.startswith("@") and private(Path(self.address).parent)
        address = ip_address(self.address)
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return (mapped or address).is_loopback


@dataclass
class Seen:
    """What was open at any look, and what in the temporary folder was not its owner's alone."""

    doors: set[Door] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    exposed: set[str] = field(default_factory=set)
    looks: int = 0

    @property
    def open(self) -> set[Door]:
        return {door for door in self.doors if not door.closed}


def watch(process: "subprocess.Popen[str]", temporary: Path) -> Seen:
    """Look from the start of a command to its end."""
    seen = Seen()
    while process.poll() is None:
        seen.looks += 1
        for number in tree(process.pid):
            seen.doors |= set(doors_of(number))
        for path in temporary.iterdir():
            seen.files.add(path.name)
            with contextlib.suppress(FileNotFoundError):
                if not private(path):
                    seen.exposed.add(f"{path.name} {stat.filemode(path.lstat().st_mode)}")
        time.sleep(PAUSE)
    return seen


def private(path: Path) -> bool:
    """Whether only its owner gets at what it holds."""
    try:
        return not path.lstat().st_mode & 0o077
    except FileNotFoundError:
        return True  # gone, as when it is removed at the end


def tree(root: int) -> list[int]:
    """A process, all that descend from it, and all of its session, whoever their parents are now."""
    found, parents = {root}, {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            _state, parent, _group, session = (path / "stat").read_text().rpartition(")")[2].split()[:4]
            parents[int(path.name)] = int(parent)
            if int(session) == root:
                found.add(int(path.name))
    while more := {number for number, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def doors_of(process: int) -> Iterator[Door]:
    """The sockets of a process that wait for others, of its own network."""
    folder, own = Path("/proc") / str(process), set()
    with contextlib.suppress(OSError):
        for descriptor in (folder / "fd").iterdir():
            with contextlib.suppress(OSError):
                own.add(str(descriptor.readlink()))
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        for _, local, _remote, state, *_, inode in lines(folder / "net" / protocol, 10):
            if f"socket:[{inode}]" in own and state == (LISTENING if protocol.startswith("tcp") else UNCONNECTED):
                address, port = local.split(":")
                yield Door(protocol, str(address_of(address)), int(port, 16))
    for line in lines(folder / "net" / "unix", 8):
        if f"socket:[{line[6]}]" in own and int(line[3], 16) & ACCEPTS:
            yield Door("unix", line[7])


def lines(table: Path, columns: int) -> Iterator[list[str]]:
    """The lines of a table in /proc below its head, as many columns of each."""
    with contextlib.suppress(OSError):
        for line in table.read_text().splitlines()[1:]:
            if len(cells := line.split()) >= columns:
                yield cells[:columns]


def address_of(digits: str) -> IPv4Address | IPv6Address:
    """Of the kernel's hexadecimal: words of 32 bits, each in the byte order of the machine."""
    words = (int(digits[i : i + 8], 16) for i in range(0, len(digits), 8))
    packed = b"".join(socket.htonl(socket.ntohl(word)).to_bytes(4, "little") for word in words)
    return ip_address(packed)
