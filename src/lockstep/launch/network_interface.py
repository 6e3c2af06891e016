"""The network interface over which ranks on several machines talk: the one that leads to where they meet.

Left to themselves gloo and nccl take the address that the machine's own name resolves to, which on many machines is
loopback, or none.
"""

import contextlib
import fcntl
import os
import socket
import struct

SIOCGIFADDR = 0x8915
"""Linux's request for the address of an interface."""
ANY = 9
"""A port for a datagram socket that sends nothing."""


def name_interface(host: str) -> None:
    """Tell gloo and nccl the interface towards `host`, unless the user has, or there is no knowing."""
    name = interface_towards(host)
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={name}")  # without the sign a prefix is meant


def interface_towards(host: str) -> str | None:
    """The interface that has the address from which this machine would speak to `host`.

    Where that is loopback, because a machine may call itself so, the only other one, if there is but one.
    """
    addresses = own_addresses()
    beyond = [name for name, address in addresses.items() if not address.startswith("127.")]
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, ANY))
        own = probe.getsockname()[0]
        found = [name for name in beyond if addresses[name] == own]
        if own.startswith("127.") and len(beyond) == 1:
            found = beyond
        return found[0] if found else None
    return None


def own_addresses() -> dict[str, str]:
    """IPv4 addresses by interface; none where the system is not Linux."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(asking.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()))
                found[name] = socket.inet_ntoa(answer[20:24])
    return found
