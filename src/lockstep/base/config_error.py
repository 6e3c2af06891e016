"""Errors in the user's input: one sentence with the key, its value, the reason and a valid example."""

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

UNQUOTED = re.compile(r"[A-Za-z0-9_./:@%+-]+")  # values that Hydra reads without quotes

LONGEST = 10_000  # characters of an error that is shown: an exception of the user's code may hold an array
LINE_BREAKS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")  # characters that end a line in a terminal or in a log


def message_lines(error: Exception) -> list[str]:
    """Return what IPython shows for an error that has this as `_render_traceback_`: its message alone."""
    return [f"{type(error).__name__}: {error}"]


class ConfigError(ValueError):
    """Invalid input. The command prints the message on one line, and exits with status 2."""

    def __str__(self) -> str:
        return shorten(LINE_BREAKS.sub(lambda match: repr(match[0])[1:-1], super().__str__()), LONGEST)

    _render_traceback_ = message_lines


@contextmanager
def errors_as(convert: Callable[[Exception], ConfigError | None]) -> Iterator[None]:
    """Convert errors of the block to ConfigErrors; an error that `convert` returns None for is raised unchanged."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        converted = convert(error)
        if converted is None:
            raise
        raise converted from converted.__cause__


def config_error(key: str, value: object, reason: str, hint: str) -> ConfigError:
    """Return the error `key=value: reason; write hint.`"""
    return ConfigError(f"{key}={shorten(as_typed(value))}: {reason}; write {hint}.")


def require(condition: bool, key: str, value: object, reason: str, hint: str) -> None:
    """Raise a ConfigError unless the condition holds."""
    if not condition:
        raise config_error(key, value, reason, hint)


def option_error(key: str, value: object, reason: str, options: Iterable[str]) -> ConfigError:
    """Return the error of a value that is not among the options; it lists them, the nearest one first."""
    names = list(options)
    near, listed = nearest(as_typed(value), names), ", ".join(names)
    if near is None:
        return config_error(key, value, reason, f"one of {listed}")
    return config_error(key, value, f"{reason} (did you mean {near}?)", f"{key}={near}, or another of {listed}")


def shorten(text: str, length: int = 300) -> str:
    """Return the text; if it is longer than `length`, its beginning and its end."""
    return text if len(text) <= length else f"{text[: length // 2]}…{text[-length // 4 :]}"


def as_typed(value: object) -> str:
    """Format a value as it is typed on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (tuple, list)):
        return "[" + ",".join(as_typed(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{as_typed(item)}" for key, item in value.items()) + "}"
    return str(value)


def is_number(value: object) -> bool:
    """Whether a value is an int or a float; a bool is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def nearest(word: str, names: Iterable[str]) -> str | None:
    """Return the name that was probably meant: one with a part that begins with the word, or is spelled alike."""
    by_lower, word = {name.lower(): name for name in names}, word.lower()
    containing = [name for name in by_lower if name.startswith(word) or (len(word) > 2 and f"_{word}" in name)]
    alike = (sorted(containing, key=len) if word else []) or get_close_matches(word, by_lower, n=1, cutoff=0.65)
    return by_lower[alike[0]] if alike else None


def hydra_quote(text: str) -> str:
    """Return a text in quotes, as Hydra reads it."""
    # Hydra halves backslashes in front of a quote only, and resolves ${
    escaped = re.sub(r"(\\*)(\$\{|')", r"\1\1\\\2", text)
    return "'" + re.sub(r"(\\+)$", r"\1\1", escaped) + "'"


def shell_quote_override(key: str, value: object) -> str:
    """Return an override with the quotes that a shell and Hydra need."""
    text = as_typed(value)
    if not UNQUOTED.fullmatch(text):
        text = hydra_quote(text)
    override = f"{key}={text}"
    return shlex.quote(override) if text == as_typed(value) or set(override) & set('"$`\\!') else f'"{override}"'


def typed_command() -> str:
    """Return the command that was typed: `lockstep` or `python -m lockstep` of a package, or `python train.py`."""
    program = Path(sys.argv[0] if sys.argv else "")
    if program.name == "__main__.py" and program.parent.name == "lockstep":
        return "python -m lockstep"
    return "lockstep" if program.name == "lockstep" else "python train.py"
