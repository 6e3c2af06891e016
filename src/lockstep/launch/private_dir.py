"""The private folder of this process, mode 0700: of the sockets of its fork server, and of files where ranks meet.

It is multiprocessing's own. This process removes it when it ends; if it is killed, its fork server does.
"""

import multiprocessing.util
import os
import stat
import tempfile
from pathlib import Path

from lockstep.base.config_error import config_error

OF_COMMAND = "LOCKSTEP_COMMAND_FOLDER"  # in the environment of the fork server: the folder of its command
MAX_PATH = 80  # bytes: a socket's path, with a name behind the folder, has at most 107, on some systems 103


def private_folder() -> Path:
    """Return the folder, which the first call creates; raise if others could replace the files of a run."""
    try:
        base = tempfile.gettempdir()
        mode = Path(base).stat().st_mode
        if mode & 0o022 and not mode & stat.S_ISVTX:
            raise OSError(f"other users may rename files in {base}: it lacks the sticky bit, chmod +t")
        folder = multiprocessing.util.get_temp_dir()
        if len(os.fsencode(folder)) > MAX_PATH:
            raise OSError(f"the path of {folder} is too long for a socket")
    except OSError as error:
        reason, hint = f"no temporary folder can be created ({error})", "TMPDIR=FOLDER, of your own, with room"
        raise config_error("TMPDIR", os.environ.get("TMPDIR", "/tmp"), reason, hint) from None
    return Path(folder)
