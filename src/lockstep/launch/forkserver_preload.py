"""Imported first by the fork server, in which nothing runs but imports and forks.

Its garbage collector is off: nothing that it imports is ever free, and looking through a million objects takes 0.2 s.
Where the command is gone, it ends without the interpreter's own end, which takes a while, and in which C++ libraries
report on the terminal what they have not freed.
"""

import atexit
import gc
import os

SERVER = os.getpid()


def skip_interpreter_exit() -> None:
    if os.getpid() == SERVER:  # ranks end as multiprocessing's children do
        os._exit(0)


gc.disable()
atexit.register(skip_interpreter_exit)
