"""What `python -m lockstep.collectives` and `python -m lockstep.bench` share: exit status, and a folder for results."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path

from lockstep import launch
from lockstep.config_error import ConfigError, config_error
from lockstep.launch import RankFailed
from lockstep.launch.signals import signals_end_command
from lockstep.streams import outlive_readers


def run_command(command: Callable[[Sequence[str]], int], words: Sequence[str], help_page: str) -> int:
    """The exit status: the command's own; 1 if a rank failed, 2 for invalid input, 130 after Ctrl-C."""
    outlive_readers()
    if {"--help", "-h"} & set(words):
        print(help_page, end="")
        return 0
    context = None
    try:
        context = launch.rank_from_env()
        with nullcontext() if context else signals_end_command():
            status = command(words)
    except (ConfigError, RankFailed) as error:
        launch.print_exit_reason(str(error).replace("process_group.", ""), context)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return 130
    if context is not None:
        launch.exit_now(status)
    return status


def output_dir(name: str) -> Path:
    """logs/NAME/<date>_<time>, like the folder of a run; it isn't made yet."""
    return Path("logs", name, f"{datetime.now():%Y-%m-%d_%H-%M-%S-%f}").absolute()


def make_output_dir(path: Path) -> None:
    """Raises ConfigError where it can't be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"the folder for the results can't be made ({error.strerror})"
        raise config_error(f"logs/{path.parent.name}", path, why, "the command in a folder where it can") from None
