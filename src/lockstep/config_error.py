"""Invalid input is refused in one sentence: the key, its value, why, and what to write instead."""

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

PLAIN = re.compile(r"[A-Za-z0-9_./:@%+-]+")
"""What Hydra reads as it stands; all else it wants in quotes."""

LINE_BREAKS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
"""What would end a line in a terminal or in a log."""


class ConfigError(ValueError):
    """Invalid input. The command prints the message on one line, and exits with status 2."""

    def __str__(self) -> str:
        return LINE_BREAKS.sub(lambda found: repr(found[0])[1:-1], super().__str__())


@contextmanager
def errors_as(refusal: Callable[[Exception], ConfigError | None]) -> Iterator[None]:
    """Raise what `refusal` makes of an error within, or, where it makes nothing of it, the error itself."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        refused = refusal(error)
        if refused is None:
            raise
        raise refused from refused.__cause__


def config_error(key: str, value: object, reason: str, hint: str) -> ConfigError:
    """The sentence `key=value: why; write instead.`, as an exception to raise."""
    return ConfigError(f"{key}={shorten(as_typed(value))}: {reason}; write {hint}.")


def shorten(text: str, most: int = 300) -> str:
    """The text, or its beginning and its end where it is long."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 4 :]}"


def cut(text: str, most: int) -> str:
    """The text, or its beginning where it is long."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def as_typed(value: object) -> str:
    """A value as it is typed on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (tuple, list)):
        return "[" + ",".join(as_typed(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{as_typed(item)}" for key, item in value.items()) + "}"
    return str(value)


def require(holds: bool, key: str, value: object, reason: str, hint: str) -> None:
    """Raise the refusal unless `holds`."""
    if not holds:
        raise config_error(key, value, reason, hint)


def is_number(value: object) -> bool:
    """Whether it is an int or a float; no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def positive(key: str, value: float) -> None:
    require(value > 0, key, value, "it must be above 0", f"{key}=0.01, say")


def not_negative(key: str, value: float) -> None:
    require(value >= 0, key, value, "it must be 0 or more", f"{key}=0")


def fraction(key: str, value: float) -> None:
    require(0 <= value < 1, key, value, "it must be at least 0 and below 1", f"{key}=0.5, say")


def option_error(key: str, value: object, reason: str, options: Iterable[str]) -> ConfigError:
    """The refusal of a value that is none of the options: the nearest is named, and all are."""
    named = list(options)
    near, listed = nearest(as_typed(value), named), ", ".join(named)
    if near is None:
        return config_error(key, value, reason, f"one of {listed}")
    return config_error(key, value, f"{reason} (did you mean {near}?)", f"{key}={near}, or another of {listed}")


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant: by its beginning, by a part, or by its spelling."""
    known, small = list(names), word.lower()
    if small:
        begun = [name for name in known if name.lower().startswith(small)]
        holding = [name for name in known if len(small) > 2 and small in name.lower()]
        if found := begun or holding:
            return min(found, key=len)
    alike = get_close_matches(small, [name.lower() for name in known], n=3, cutoff=0.5)
    mistyped = [name for name in alike if len(name) == len(small) and sum(map(str.__ne__, name, small)) == 1]
    return next((name for name in known if [name.lower()] == (mistyped or alike)[:1]), None)


def shell_quote_override(key: str, value: object) -> str:
    """An override as it is typed in a shell, whatever is in its value: in Hydra's quotes, and those in the shell's."""
    text = as_typed(value)
    if not PLAIN.fullmatch(text):
        # of backslashes Hydra halves those in front of a quote alone; ${ would be looked up
        escaped = re.sub(r"(\\*)(\$\{|')", r"\1\1\\\2", text)
        text = "'" + re.sub(r"(\\+)$", r"\1\1", escaped) + "'"
    override = f"{key}={text}"
    return shlex.quote(override) if text == as_typed(value) or set(override) & set('"$`\\!') else f'"{override}"'


def typed_command() -> str:
    """The command as the user typed it: `lockstep` or `python -m lockstep` of a package, or `python train.py`."""
    program = Path(sys.argv[0] if sys.argv else "")
    if program.name == "__main__.py" and program.parent.name == "lockstep":
        return "python -m lockstep"
    return "lockstep" if program.name == "lockstep" else "python train.py"
