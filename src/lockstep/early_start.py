"""Start the fork server after a first look at the command line, so that it imports while Hydra composes.

A wrong guess (another engine, an invalid command) costs time and nothing else.
"""

import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from lockstep.config_error import ConfigError
from lockstep.files import CONF
from lockstep.launch import forkserver
from lockstep.launch.external_launcher import rank_from_env
from lockstep.launch.signals import ENDING, end_command
from lockstep.memory.allocation import collect_rarely
from lockstep.schemas.run import ENGINES, EVERY_RUN
from lockstep.streams import open_closed

TENSORBOARD = "torch.utils.tensorboard"


def start_early(arguments: Sequence[str]) -> None:
    """Start the fork server if these arguments probably make this process start ranks."""
    collect_rarely()
    with suppress(ConfigError, OSError):  # raised again where the ranks start
        if ranks_to_start(arguments):
            open_closed()
            for number in ENDING:
                if signal.getsignal(number) is signal.SIG_DFL:
                    signal.signal(number, end_command)
            forkserver.start_forkserver(*modules_in(arguments))


def ranks_to_start(arguments: Sequence[str]) -> bool:
    """Whether these arguments probably make this process start ranks."""
    flags = {word for word in arguments if word.startswith("-")}
    if flags - {"-m", "--multirun"} or rank_from_env() is not None:
        return False
    overrides = parse_overrides(arguments)
    if "strategy.in_process" in overrides:
        return overrides["strategy.in_process"].lower() != "true"
    terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
    return bool(flags) or not terminal or bool({"strategy", "experiment"} & overrides.keys())


def parse_overrides(arguments: Sequence[str]) -> dict[str, str]:
    """Return values by key; the last of a key that is given twice."""
    return dict(word.lstrip("+").split("=", 1) for word in arguments if "=" in word)


def modules_in(arguments: Sequence[str]) -> list[str]:
    """Return the modules of the engines and of the logger that these arguments name, and what each run needs."""
    engines = choices(arguments, "engine", "lightning")
    modules = [module for name, module in ENGINES.items() if name in engines or "both" in engines]
    board = [TENSORBOARD] * ("tensorboard" in choices(arguments, "logger", "tensorboard"))
    return [*modules, *board, *EVERY_RUN]


def choices(arguments: Sequence[str], group: str, default: str) -> list[str]:
    """Return the choices of a group that these arguments name, themselves or by an experiment's file."""
    overrides = parse_overrides(arguments)
    if group in overrides:
        return re.findall(r"\w+", overrides[group])
    paths = [CONF / "experiment" / f"{name}.yaml" for name in overrides.get("experiment", "").split(",")]
    texts = [path.read_text() if path.is_file() else "" for path in paths]
    matches = [re.search(rf"override /{group}: *(\w+|\[.*?\])", text) for text in texts]
    return [name for match in matches for name in re.findall(r"\w+", match[1] if match else default)]
