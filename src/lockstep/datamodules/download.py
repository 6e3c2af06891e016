"""Download a dataset of torchvision, within a bounded time and with errors in a sentence."""

import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from lockstep.base.config_error import config_error

TIMEOUT = 15  # seconds without a byte after which a server is given up


def download(kind: Any, root: str) -> tuple[Any, Any]:
    """Return a dataset of torchvision to train on and one to test, downloaded if they are missing below `root`.

    A failed download leaves none of the folders that it has made.
    """
    raw, before = Path(root, kind.__name__, "raw"), socket.getdefaulttimeout()
    missing = [folder for folder in (raw, *raw.parents) if not folder.exists()]
    socket.setdefaulttimeout(TIMEOUT)
    try:
        return kind(root, train=True, download=True), kind(root, train=False)
    except (OSError, EOFError, RuntimeError, ValueError) as error:
        for folder in missing:
            with suppress(OSError):  # it is not there, or holds a file
                folder.rmdir()
        reason = f"{kind.__name__} cannot be read or downloaded there ({' '.join(str(error).split())})"
        raise config_error("data.root", root, reason, "data=digits, which needs no file, or another folder") from None
    finally:
        socket.setdefaulttimeout(before)
