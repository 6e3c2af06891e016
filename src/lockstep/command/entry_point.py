"""The common part of all commands: exit status, KEY=VALUE arguments, and folders for what they write."""

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import MISSING, fields
from datetime import datetime
from pathlib import Path
from traceback import print_exception, walk_stack
from typing import Any, NoReturn, TypeVar, get_origin, get_type_hints

from lockstep.base.config_error import ConfigError, nearest
from lockstep.base.private_api import cpython
from lockstep.base.streams import outlive_readers
from lockstep.launch.disk import write_error
from lockstep.launch.external_launcher import rank_from_env
from lockstep.launch.failure import RankFailed, delay_exit, print_exit_reason
from lockstep.launch.signals import end_command, signal_handlers
from lockstep.plan.schemas.coerce import coerce

FULL_ERRORS = "HYDRA_FULL_ERROR" in os.environ  # whether unexpected errors are shown with tracebacks
IN_PROCESS = "lockstep.launch.worker"  # imported if a rank ran in this process
PROGRAMS = ("__main__", "lockstep.__main__", "lockstep.command.cli", __name__, "runpy")  # of a command without a caller
Options = TypeVar("Options")


def run_command(
    command: Callable[[Sequence[str]], int],
    words: Sequence[str],
    help_page: str | None = None,
    has_ranks: bool = True,
) -> int:
    """Run a command, and return its exit status: 1 if a rank failed, 2 for invalid input; a single line says why.

    A rank of an external launcher exits here, if the command `has_ranks`. `help_page` is None if the command itself
    understands `--help`.
    """
    outlive_readers()
    if help_page is not None and {"--help", "-h"} & set(words):
        print(help_page, end="")
        return 0
    context = None
    try:
        context = rank_from_env() if has_ranks else None
        with nullcontext() if context else signal_handlers(end_command):
            status = command(words)
    except (ConfigError, RankFailed) as error:
        if FULL_ERRORS and error.__cause__ is not None:
            print_exception(error.__cause__)
        text, is_refused = str(error), isinstance(error, ConfigError)
        print_exit_reason(text, context if is_refused else None)
        if is_refused and context is not None and context.local_rank > 0:
            delay_exit()  # the rank that prints ends first
        status = 2 if is_refused else 1
    except SystemExit as ended:
        if context is None:
            raise
        status = ended.code if isinstance(ended.code, int) else 1
    if context is not None:
        exit_now(status)
    return status


def exit_fast(status: object) -> None:
    """Exit without the interpreter's own clean-up, which takes a second to free what torch holds, piece by piece.

    Exit functions run, threads end and output is flushed before. Return if that is left to the interpreter: a rank ran
    in this process, or a debugger, a profiler, coverage or a test has called the program.
    """
    frames = (frame for frame, _ in walk_stack(inspect.currentframe()))
    if IN_PROCESS in sys.modules or any(frame.f_globals.get("__name__") not in PROGRAMS for frame in frames):
        return
    if status is not None and not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    cpython.run_exit_functions()
    exit_now(status or 0)


def exit_now(status: int) -> NoReturn:
    """Exit without the interpreter's own clean-up, at which gloo's threads may abort."""
    cpython.remove_temporary_folder()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status & 0xFF)


def output_dir(name: str) -> Path:
    """Return logs/NAME/<date>_<time>, which `make_output_dir` creates."""
    return Path("logs", name, f"{datetime.now():%Y-%m-%d_%H-%M-%S-%f}").absolute()


def make_output_dir(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(path, error, f"logs/{path.parent.name}") from None


def options(cls: type[Options], words: Sequence[str], **given: object) -> Options:
    """Return an instance of `cls` from KEY=VALUE words, as OmegaConf reads them. given: values of further fields."""
    from omegaconf import OmegaConf  # slow to import
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    defaults = {field.name: field.default for field in fields(cls)}  # type: ignore[arg-type]
    try:
        values: Any = OmegaConf.to_container(OmegaConf.from_dotlist([*words]), resolve=True)
    except (YAMLError, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{' '.join(words)}: this cannot be parsed ({reason}); write KEY=VALUE.") from None
    filled: Options = coerce(cls, "", {**defaults, **values, **given})
    return filled


def arguments(cls: type[Options], words: Sequence[str], usage: str) -> Options:
    """Return an instance of `cls`: fields without a default take the words in order, the others KEY=VALUE.

    The last field without a default takes all words that follow if it is a tuple. usage: the command, which ends with a
    word for each field without a default; for messages.
    """
    names = [field.name for field in fields(cls) if field.default is MISSING]  # type: ignore[arg-type]
    keys = [field.name for field in fields(cls) if field.name not in names]  # type: ignore[arg-type]
    for word in words:
        key, _, value = word.partition("=")
        if key.startswith("--") and key[2:].replace("-", "_").isidentifier():
            near = nearest(key[2:], keys)
            hint = f"{near}={value or 'VALUE'}" if near else usage
            raise ConfigError(f"{key}: keys have no dashes; write {hint}.")
    keyed = [word for word in words if _has_key(word, keys)]
    positional: list[Any] = [word for word in words if word not in keyed]
    if len(positional) < len(names):
        missing = usage.split()[len(positional) - len(names)].strip('"…')
        raise ConfigError(f"{missing} is missing; write {usage}.")
    if get_origin(get_type_hints(cls)[names[-1]]) is tuple:
        positional[len(names) - 1 :] = [tuple(positional[len(names) - 1 :])]
    if len(positional) > len(names):
        hint = " ".join([usage, *(f"{key}=VALUE" for key in keys)])
        raise ConfigError(f"{positional[len(names)]}: this is one word too many; write {hint}.")
    return options(cls, keyed, **dict(zip(names, positional, strict=True)))


def _has_key(word: str, keys: Sequence[str]) -> bool:
    """Whether a word is KEY=VALUE of one of the keys or, mistyped, nearly of one; a file may have such a name."""
    key, is_pair, _ = word.partition("=")
    return bool(is_pair) and (key in keys or (nearest(key, keys) is not None and not Path(word).exists()))
