"""Code that no file holds: what a notebook's cells define, or the script that runs. Other processes get it by value."""

import pickle
import sys
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

from lockstep.config_error import config_error, nearest
from lockstep.schemas.target import KEY

MAIN = "__main__"


def pickled_main(values: Any) -> bytes | None:
    """What the targets among the values name of `__main__`; None where they name nothing of it.

    Raises:
        ConfigError: it is not there, or cannot be pickled.
    """
    named = {path: key for key, path in _paths("", values) if path.startswith(f"{MAIN}.")}
    if not named:
        return None
    found = {path.split(".")[1]: _defined(key, path) for path, key in named.items()}
    path, key = next(iter(named.items()))
    try:
        import cloudpickle
    except ImportError:
        reason = "what no file holds comes to the ranks by cloudpickle, which is not installed"
        raise config_error(key, path, reason, "it into a file, or pip install cloudpickle") from None
    try:
        return bytes(cloudpickle.dumps(found))
    except Exception as error:
        reason = f"it cannot be sent to the ranks ({type(error).__name__}: {error})"
        raise config_error(key, path, reason, "it into a file") from None


def _defined(key: str, path: str) -> Any:
    main, name = vars(sys.modules[MAIN]), path.split(".")[1]
    if name not in main:
        near = nearest(name, [own for own in main if not own.startswith("_")])
        hint = f"{key}={MAIN}.{near}" if near else "the path of a class or a function"
        raise config_error(key, path, f"no {name} is defined here" + (f" (did you mean {near}?)" if near else ""), hint)
    return main[name]


def restore_main(pickled: bytes | None) -> None:
    """Define in this process's `__main__` what was pickled."""
    if pickled is not None:
        vars(sys.modules[MAIN]).update(pickle.loads(pickled))


def _paths(key: str, values: Any) -> Iterator[tuple[str, str]]:
    """Of all targets, wherever among the values, with their keys."""
    if is_dataclass(values):
        values = vars(values)
    if isinstance(values, Mapping):
        for name, own in values.items():
            own_key = key if name == "arguments" else f"{key}.{name}".lstrip(".")
            if name == KEY and isinstance(own, str):
                yield own_key, own
            yield from _paths(own_key, own)
    elif isinstance(values, list | tuple):
        for own in values:
            yield from _paths(key, own)
