"""What `python -m lockstep.collectives` and `python -m bench` share: arguments, exit status, a folder."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lockstep.config_error import ConfigError, config_error
from lockstep.launch.external_launcher import rank_from_env
from lockstep.launch.failure import RankFailed, exit_now, let_rank_zero_print, print_exit_reason
from lockstep.launch.stop_handler import signals_end_command
from lockstep.schemas.coerce import coerce, unknown_key
from lockstep.streams import outlive_readers

Options = TypeVar("Options")


def run_command(command: Callable[[Sequence[str]], int], words: Sequence[str], help_page: str) -> int:
    """The exit status: the command's own; 1 if a rank failed, 2 for invalid input, 130 after Ctrl-C."""
    outlive_readers()
    if {"--help", "-h"} & set(words):
        print(help_page, end="")
        return 0
    context = None
    try:
        context = rank_from_env()
        with nullcontext() if context else signals_end_command():
            status = command(words)
    except (ConfigError, RankFailed) as error:
        print_exit_reason(str(error).replace("process_group.", ""), context)
        let_rank_zero_print(context)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return 130
    if context is not None:
        exit_now(status)
    return status


def output_dir(name: str) -> Path:
    """logs/NAME/<date>_<time>, like the folder of a run; it isn't made yet."""
    return Path("logs", name, f"{datetime.now():%Y-%m-%d_%H-%M-%S-%f}").absolute()


def make_output_dir(path: Path) -> None:
    """Raises ConfigError where it can't be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"the folder for the results can't be made ({error.strerror})"
        raise config_error(f"logs/{path.parent.name}", path, reason, "the command in a folder where it can") from None


def options(cls: type[Options], words: Sequence[str], command: str, **defaults: object) -> Options:
    """An instance of `cls` from the words, from `defaults` and from the fields' own; `command` is named in refusals.

    OmegaConf reads the words: 2 is a number, true a truth value, tcp://… text.
    """
    defaults = {field.name: field.default for field in fields(cls)} | defaults  # type: ignore[arg-type]
    for word in words:
        if not word.partition("=")[0] or "=" not in word:
            raise ConfigError(f"{word}: this is no KEY=VALUE; {command} --help lists the keys.")
    try:
        given: Any = OmegaConf.to_container(OmegaConf.from_dotlist(list(words)), resolve=True)
    except (OmegaConfBaseException, yaml.YAMLError) as error:
        reason = f"this cannot be read ({' '.join(str(error).split())})"
        raise ConfigError(f"{' '.join(words)}: {reason}; write KEY=VALUE.") from None
    for key in given:
        if key not in defaults:
            raise unknown_key(key, given[key], [*defaults], command)
    return coerce(cls, "", {**defaults, **given})
