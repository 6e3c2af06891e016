"""Code in `__main__`, a notebook's cells or a script, which other processes get by value."""

import json
import pickle
import re
import sys
from dataclasses import fields, is_dataclass
from typing import Any

import cloudpickle

from lockstep.config_error import config_error
from lockstep.schemas.target import KEY

MAIN = "__main__"
TARGET = re.compile(rf'"{KEY}": "{MAIN}\.(\w+)')


def pickled_main(work: object) -> bytes | None:
    """Return the classes and functions of `__main__` that targets of a dataclass name, pickled; None if they name none.

    Raises:
        ConfigError: one cannot be pickled, or is not defined there.
    """
    names = TARGET.findall(json.dumps(work, skipkeys=True, default=_fields))
    if not names:
        return None
    try:
        return bytes(cloudpickle.dumps({name: getattr(sys.modules[MAIN], name) for name in names}))
    except Exception as error:
        reason = f"it cannot be sent to the ranks ({type(error).__name__}: {error})"
        raise config_error(KEY, f"{MAIN}.{names[0]}", reason, "it into a file") from None


def _fields(value: Any) -> dict[str, Any] | None:
    return {field.name: getattr(value, field.name) for field in fields(value)} if is_dataclass(value) else None


def restore_main(pickled: bytes | None) -> None:
    """Define what was pickled in this process's `__main__`."""
    if pickled is not None:
        vars(sys.modules[MAIN]).update(pickle.loads(pickled))
