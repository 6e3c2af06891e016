"""Act as another user of the machine, at the store of a run: `intruder.py HOST PORT ACTION`.

`add`: ask every group to stop, as a rank would; `rewrite`: overwrite every key that ranks use. Prints that it is ready,
and what it wrote.
"""

import os
import re
import sys
import time
from datetime import timedelta
from typing import Any

import psutil
from torch.distributed import TCPStore  # type: ignore[attr-defined]

NOBODY = 65534
OF_RANKS = re.compile("(.*[0-9a-f]{64}/)|nonce of rank ")
"""What the keys of ranks begin with; the other keys are those of torchrun's agents."""


def main(host: str, port: str, action: str) -> None:
    print("ready", flush=True)
    store = enter(host, int(port))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setuid(NOBODY)
    try:
        while True:
            for key in store.list_keys():
                for name in names(key, action):
                    store.set(name, "0" * 32)
                    print(f"wrote {name}", flush=True)
            time.sleep(0.02)
    except RuntimeError:  # the store is gone
        return


def enter(host: str, port: int) -> Any:
    """Connect as soon as the port is open: torch itself tries again at longer and longer intervals."""
    while True:
        while not any(
            socket.laddr[1:] == (port,) for socket in psutil.net_connections("tcp") if socket.status == "LISTEN"
        ):
            time.sleep(0.01)
        try:
            return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=1), wait_for_workers=False)
        except RuntimeError:
            time.sleep(0.02)


def names(key: str, action: str) -> list[str]:
    """Return the keys to write after a key has been seen."""
    match = OF_RANKS.match(key)
    if match is None or "/stop" in key:
        return []
    if action == "rewrite":
        return [key]
    return [f"{match[1]}{name}" for name in ("stop", "stop 0", "stop 1")] if match[1] else []


if __name__ == "__main__":
    main(*sys.argv[1:])
