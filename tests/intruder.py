"""Act as another user of the machine, at the store of a run: `intruder.py HOST PORT ACTION FOLDER`.

`add`: ask every group to stop, as a rank would; `rewrite`: overwrite every key that ranks use, as rank 0 with a secret
in FOLDER. Prints that it is ready, and what it wrote.
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
INTRUDERS_SECRET = b"0" * 64


def main(host: str, port: str, action: str, folder: str) -> None:
    print("ready", flush=True)
    store = enter(host, int(port))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setuid(NOBODY)
    secret = Path(folder) / SECRET
    secret.write_bytes(SECRET_HEADER + INTRUDERS_SECRET)
    secret.chmod(0o600)
    written: set[str] = set()
    try:
        while True:
            for key in store.list_keys():
                if "start " in key and key not in written:
                    print(f"saw {key}", flush=True)
                    written.add(key)
                for name, value in values(key, action, port, str(secret)).items():
                    store.set(name, value)
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


def values(key: str, action: str, port: str, secret: str) -> dict[str, bytes]:
    """Return what to write after a key has been seen."""
    group, _, name = key.rpartition("/")
    if "start " not in key or name.startswith("stop"):
        return {}
    if action == "add":
        return {f"{group}/{key}": b"1" for key in ("stop", "stop 0", "stop 1")}
    if name.startswith("reply to "):
        run = os.environ.get("TORCHELASTIC_RUN_ID", "")
        fields = (name.removeprefix("reply to "), secret, port, "2", "1", run)
        mac = compute_hmac(INTRUDERS_SECRET, *(field.encode() for field in fields)).decode()
        return {key: json.dumps([secret, mac]).encode()}
    return {key: b"0" * 32}


if __name__ == "__main__":
    main(*sys.argv[1:])
