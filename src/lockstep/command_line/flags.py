"""The flags of the command, which are Hydra's: those that it does not know, or not together, are refused by name."""

from argparse import Namespace
from typing import NoReturn

from lockstep.config_error import ConfigError, typed_command
from lockstep.private_api.hydra import get_args_parser

COMMANDS = ("run", "multirun", "cfg", "shell_completion", "info")
"""What Hydra may be asked to do, one at a time."""


def require_flags(arguments: list[str]) -> Namespace:
    """The parsed arguments. Of a wrong flag argparse would print how it is used, and Hydra a traceback.

    Raises:
        ConfigError: a flag that there is not, a value that it does not take, or flags that do not go together.
    """

    def fail(message: str) -> NoReturn:
        raise ConfigError(f"{message}; write flags that {typed_command()} --hydra-help lists, then KEY=VALUE.")

    parser = get_args_parser()
    parser.error = fail  # type: ignore[method-assign]
    flags = parser.parse_args(arguments)
    asked = [f"--{name.replace('_', '-')}" for name in COMMANDS if getattr(flags, name) not in (None, False)]
    if len(asked) > 1:
        raise ConfigError(f"{' '.join(asked)}: these do not go together; write one of them.")
    alone = {"--resolve": flags.resolve and not flags.help, f"--package={flags.package}": flags.package is not None}
    for flag in [flag for flag, given in alone.items() if given and flags.cfg is None]:
        raise ConfigError(f"{flag}: it goes with --cfg alone; write --cfg job {flag}.")
    if flags.experimental_rerun is not None:
        reason = "a pickled job is not run again here"
        raise ConfigError(f"--experimental-rerun: {reason}; write the overrides that it had, or resume=true.")
    return flags
