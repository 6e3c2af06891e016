"""Imported early by the fork server: where the command is gone, it ends without the interpreter's own end.

That takes a while with all that is imported, and C++ libraries then report on the terminal what they have not freed.
"""

import atexit
import os

SERVER = os.getpid()


def skip_interpreter_exit() -> None:
    if os.getpid() == SERVER:  # ranks end as multiprocessing's children do
        os._exit(0)


atexit.register(skip_interpreter_exit)
