"""The network interface for ranks on several machines: the one that routes to their rendezvous.

By default gloo and nccl take the address that the machine's own name resolves to, which on many machines is loopback,
or none.
"""

import contextlib
import os
import socket

import psutil

ANY_PORT = 9
"""The port of a datagram socket that sends nothing."""


def set_interface(host: str) -> None:
    """Set gloo's and nccl's interface to the one towards `host`, unless the user has set it or there is none."""
    name = interface_towards(host)
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={name}")  # without the sign a prefix is meant


def interface_towards(host: str) -> str | None:
    """Return the interface with this machine's source address for packets to `host`, or None.

    If that is loopback, because `host` is this machine, return the only other interface if there is exactly one.
    """
    entries = [(name, entry) for name, entries in psutil.net_if_addrs().items() for entry in entries]
    addresses = [(name, entry.address) for name, entry in entries if entry.family == socket.AF_INET]
    beyond = {name: address for name, address in addresses if not address.startswith("127.")}
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, ANY_PORT))
        source = probe.getsockname()[0]
        if source.startswith("127.") and len(beyond) == 1:
            return next(iter(beyond))
        return next((name for name, address in addresses if name in beyond and address == source), None)
    return None
