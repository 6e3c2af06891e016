"""Another user of the machine, at the store of a run: `intruder.py HOST PORT WHAT FOLDER`.

`add`: asks every group to stop, as a rank would; `rewrite`: puts something of its own under every key that ranks use,
as if it was rank 0 where it can be, with a secret of its own making in FOLDER. It says that it is ready, and what it
wrote.
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from lockstep.launch.external_rendezvous import SECRET, SECRET_HEADER
from lockstep.launch.signed_store import compute_hmac

NOBODY = 65534
OWN = b"0" * 64
"""The intruder's secret."""


def main(host: str, port: str, what: str, folder: str) -> None:
    print("ready", flush=True)
    store = entered(host, int(port))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setuid(NOBODY)
    secret = Path(folder) / SECRET
    secret.write_bytes(SECRET_HEADER + OWN)
    secret.chmod(0o600)
    written: set[str] = set()
    try:
        while True:
            for key in store.list_keys():
                if "start " in key and key not in written:
                    print(f"saw {key}", flush=True)
                    written.add(key)
                for name, value in wanted(key, what, port, str(secret)).items():
                    store.set(name, value)
                    print(f"wrote {name}", flush=True)
            time.sleep(0.02)
    except RuntimeError:  # the store is gone
        return


def entered(host: str, port: int) -> Any:
    """As soon as somebody listens there: torch itself tries again at longer and longer intervals."""
    while True:
        while not any(own.laddr[1:] == (port,) for own in psutil.net_connections("tcp") if own.status == "LISTEN"):
            time.sleep(0.01)
        try:
            return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=1), wait_for_workers=False)
        except RuntimeError:
            time.sleep(0.02)


def wanted(key: str, what: str, port: str, secret: str) -> dict[str, bytes]:
    """What it writes when it has seen a key."""
    group, _, name = key.rpartition("/")
    if "start " not in key or name.startswith("stop"):
        return {}
    if what == "add":
        return {f"{group}/{own}": b"1" for own in ("stop", "stop 0", "stop 1")}
    if name.startswith("reply to "):
        run = os.environ.get("TORCHELASTIC_RUN_ID", "")
        about = (name.removeprefix("reply to "), secret, port, "2", "1", run)
        mac = compute_hmac(OWN, *(part.encode() for part in about)).decode()
        return {key: json.dumps([secret, mac]).encode()}
    return {key: b"0" * 32}


if __name__ == "__main__":
    main(*sys.argv[1:])
