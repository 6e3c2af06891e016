"""Start the fork server from a first look at the command line, so that it imports while Hydra composes.

A wrong guess (another engine, a command that is refused) costs time and nothing else.
"""

import re
import sys
from collections.abc import Sequence
from contextlib import suppress

from lockstep.conf import CONF
from lockstep.config_error import ConfigError
from lockstep.launch import forkserver
from lockstep.launch.external_launcher import rank_from_env
from lockstep.memory.allocation import collect_rarely
from lockstep.schemas.engine import ENGINES
from lockstep.streams import open_closed

TENSORBOARD = "torch.utils.tensorboard"
SWEEPS = {"-m", "--multirun"}


def start_early(arguments: Sequence[str]) -> None:
    """Start it, unless the arguments ask for something else than a run, or for one that needs no process of its own."""
    collect_rarely()
    with suppress(ConfigError, OSError):  # raised again where the ranks start
        if ranks_to_start(arguments):
            open_closed()
            forkserver.end_servers_on_signals()
            forkserver.start_forkserver(*modules_in(arguments))


def ranks_to_start(arguments: Sequence[str]) -> bool:
    """Whether these arguments probably make this process start ranks."""
    flags = {word for word in arguments if word.startswith("-")}
    if flags - SWEEPS or rank_from_env() is not None:
        return False
    given = given_in(arguments)
    if "strategy.in_process" in given:
        return given["strategy.in_process"].lower() != "true"
    terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
    return bool(flags) or not terminal or bool({"strategy", "experiment"} & given.keys())


def given_in(arguments: Sequence[str]) -> dict[str, str]:
    """Values by key, of a key that is given twice the last."""
    return dict(word.lstrip("+").split("=", 1) for word in arguments if "=" in word)


def modules_in(arguments: Sequence[str]) -> list[str]:
    """The modules of the engines and of the logger that these arguments name."""
    named = named_in(arguments, "engine", "lightning")
    engines = [module for name, module in ENGINES.items() if name in named or "both" in named]
    return engines + ([TENSORBOARD] if "tensorboard" in named_in(arguments, "logger", "tensorboard") else [])


def named_in(arguments: Sequence[str], group: str, default: str) -> list[str]:
    """The choices of a group that these arguments name, themselves or by an experiment's file."""
    given = given_in(arguments)
    if group in given:
        return re.findall(r"\w+", given[group])
    paths = [CONF / "experiment" / f"{name}.yaml" for name in given.get("experiment", "").split(",")]
    texts = [path.read_text() if path.is_file() else "" for path in paths]
    found = [re.search(rf"override /{group}: *(\w+|\[.*?\])", text) for text in texts]
    return [name for match in found for name in re.findall(r"\w+", match[1] if match else default)]
