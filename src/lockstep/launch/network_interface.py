"""The network interface for ranks on several machines: the one that routes to their rendezvous.

By default gloo and nccl take the address that the machine's own name resolves to, which on many machines is loopback,
or none.
"""

import contextlib
import fcntl
import os
import socket
import struct

SIOCGIFADDR = 0x8915
"""Linux's request for the address of an interface."""
ANY = 9
"""The port of a datagram socket that sends nothing."""


def name_interface(host: str) -> None:
    """Set gloo's and nccl's interface to the one towards `host`, unless the user has set it or none is found."""
    name = interface_towards(host)
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={name}")  # without the sign a prefix is meant


def interface_towards(host: str) -> str | None:
    """The interface with this machine's source address for packets to `host`.

    Where that is loopback, because `host` is this machine, the only other interface if there is exactly one.
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
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                reply = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()))
                found[name] = socket.inet_ntoa(reply[20:24])
    return found
