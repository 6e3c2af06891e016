"""A run on one machine cannot be reached from elsewhere, or by other users."""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import ROOT, Command

RUN = ("logger=none", "accelerator=cpu", "devices=2", "max_epochs=1", "engine=both", "strategy=ddp_spawn")
PROBE = re.compile("[a-z0-9_]{8}")
"""What Python's tempfile makes for an instant, to see whether it can."""
OPEN_TO_ALL = ("sh", "-c", 'umask 0; exec "$@"', "sh")
"""Makes every file of a command what the command itself does not forbid."""
Seen = set[tuple[str, bool]]
"""Addresses or files, each with whether it is its owner's alone."""


def tree(root: int) -> list[int]:
    """Return the pids of a process, of its descendants, and of its session, whoever their parents are now."""
    pids = {root}
    for pid in psutil.pids():
        with suppress(ProcessLookupError):
            if os.getsid(pid) == root:
                pids.add(pid)
    with suppress(psutil.NoSuchProcess):
        pids |= {process.pid for process in psutil.Process(root).children(recursive=True)}
    return sorted(pids)


def watch(process: "subprocess.Popen[str]", temporary: Path) -> tuple[Seen, Seen]:
    """Return the sockets that a command listens at while it runs, and its temporary files."""
    sockets, files = Seen(), Seen()
    while process.poll() is None:
        for pid in tree(process.pid):
            with suppress(psutil.Error, OSError):
                sockets |= {listener(each) for each in psutil.Process(pid).net_connections("all") if accepts(each)}
        files |= {(path.name, is_owners(path)) for path in temporary.iterdir()}
        time.sleep(0.03)
    return sockets, files


def accepts(connection: Any) -> bool:
    """Whether a socket accepts anyone: a connected one hears its peer alone."""
    datagrams = connection.type == socket.SOCK_DGRAM and not connection.raddr
    return connection.family == socket.AF_UNIX or connection.status == psutil.CONN_LISTEN or datagrams


def listener(connection: Any) -> tuple[str, bool]:
    """Return an address, and whether neither other machines nor, by a unix socket, other users can reach it."""
    if connection.family == socket.AF_UNIX:  # a path, or a name without a slash that is open to all
        path = str(connection.laddr)
        return path, not path or (path.startswith("/") and is_owners(Path(path).parent))
    ip = ip_address(connection.laddr.ip)
    return str(ip), ((ip.ipv4_mapped if isinstance(ip, IPv6Address) else None) or ip).is_loopback


def is_owners(path: Path) -> bool:
    """Whether only its owner can read a file or folder; also True if it has been removed."""
    try:
        return not path.lstat().st_mode & 0o077
    except FileNotFoundError:
        return True


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_is_open(command: Command) -> None:
    with tempfile.TemporaryDirectory(prefix="doors-") as name:
        (folder := Path(name)).chmod(0o1777)  # everybody's, as /tmp is
        line = (*OPEN_TO_ALL, sys.executable, str(ROOT / "train.py"), *RUN)
        process = command.popen(*line, MASTER_PORT="29500", TMPDIR=name)
        sockets, files = watch(process, folder)
        ended = command.wait(process)
        assert ended.status == 0, ended.err
        assert ("127.0.0.1", True) in sockets, "gloo's own sockets, so the watch does see sockets"
        assert [each for each, is_private in sockets | files if not is_private] == []
        named = {each for each, _ in files if not PROBE.fullmatch(each)}
        assert len(named) == 1, "what a run needs only while it lasts lies in one folder"
        assert re.fullmatch("pymp-[a-z0-9_]{8}", named.pop()), "whose name nobody can guess"
        assert not list(folder.iterdir())
