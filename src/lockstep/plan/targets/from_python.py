"""What is passed from Python: `run(devices=2)` is typed as `devices=2`, and `run(model=Net)` names code like YAML."""

import functools
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import cloudpickle

from lockstep.base.config_error import UNQUOTED, as_typed, config_error, hydra_quote, require
from lockstep.plan.schemas.groups import TARGETS
from lockstep.plan.schemas.target import ARGS, KEY

MAIN = "__main__"
Code = str | Callable[..., Any] | Mapping[str, Any]
"""The name of an option; or a class, a function, a functools.partial of one, or the content of a YAML file."""
EngineName = Literal["lightning", "raw", "both"]
Precision = Literal["32-true", "64-true", "bf16-mixed", "16-mixed"]
NO_TEXT = re.compile(r"null|true|false|[+-]?(nan|inf|[\d_.]+(e[+-]?\d+)?)", re.IGNORECASE)
"""Words that Hydra reads as other values than a text."""


def words_of(keywords: Mapping[str, Any]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Return the keyword arguments of `run` as overrides, and the targets of the code among them, by group."""
    code = {key: value for key, value in keywords.items() if key in TARGETS and not isinstance(value, str | list)}
    words = [f"{key}={_word(value)}" for key, value in keywords.items() if key not in code]
    return words, {group: _target(group, value) for group, value in code.items()}


def _word(value: object) -> str:
    """Return a value as Hydra reads it; quoted, if a text has special characters or looks like another value."""
    text = as_typed(value)
    is_plain = not isinstance(value, str | Path) or (UNQUOTED.fullmatch(text) and not NO_TEXT.fullmatch(text))
    return text if is_plain else hydra_quote(text)


def _target(key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {str(name): argument for name, argument in value.items()}
    is_partial = isinstance(value, functools.partial)
    call = value.func if is_partial else value
    name, kind = getattr(call, "__qualname__", None), type(call).__name__
    reason = "it is neither a class nor a function at the top of a module, or of a notebook's cell"
    hint = f"{key}=CLASS, or functools.partial(CLASS, …): an object is created on each rank, under the run's seed"
    require(name is not None and "<" not in name, key, name or kind, reason, hint)
    if call.__module__ == MAIN:  # of another process's: Ray sends a script's class by value
        vars(sys.modules[MAIN]).setdefault(call.__qualname__, call)
    return {KEY: f"{call.__module__}.{name}"} | ({ARGS: list(value.args), **value.keywords} if is_partial else {})


def pickled_main(work: object) -> bytes | None:
    """Pickle the classes and functions of `__main__` that `work` names as targets; return None if there are none."""
    names = re.findall(rf"{KEY}\W+{MAIN}\.(\w+)", repr(work))
    if not names:
        return None
    try:
        return bytes(cloudpickle.dumps({name: getattr(sys.modules[MAIN], name) for name in names}))
    except Exception as error:
        reason = f"it cannot be sent to the ranks ({type(error).__name__}: {error})"
        raise config_error(KEY, f"{MAIN}.{names[0]}", reason, "it into a file") from None
