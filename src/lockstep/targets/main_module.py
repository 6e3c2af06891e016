"""Code in `__main__`, a notebook's cells or a script, which other processes get by value."""

import pickle
import re
import sys

import cloudpickle

from lockstep.config_error import config_error
from lockstep.schemas.plan_json import to_json
from lockstep.schemas.target import KEY

MAIN = "__main__"


def pickled_main(work: object) -> bytes | None:
    """Pickle the classes and functions of `__main__` that `work` names as targets; return None if there are none."""
    names = re.findall(rf'"{KEY}": "{MAIN}\.(\w+)', to_json(work))
    if not names:
        return None
    try:
        return bytes(cloudpickle.dumps({name: getattr(sys.modules[MAIN], name) for name in names}))
    except Exception as error:
        reason = f"it cannot be sent to the ranks ({type(error).__name__}: {error})"
        raise config_error(KEY, f"{MAIN}.{names[0]}", reason, "it into a file") from None


def restore_main(pickled: bytes) -> None:
    """Define what was pickled in this process's `__main__`."""
    vars(sys.modules[MAIN]).update(pickle.loads(pickled))
