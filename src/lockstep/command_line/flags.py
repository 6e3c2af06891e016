"""The flags of the command, which are Hydra's."""

from argparse import Namespace
from pathlib import Path
from typing import NoReturn

from lockstep.config_error import ConfigError, typed_command
from lockstep.private_api.hydra import get_args_parser


def parse_flags(arguments: list[str]) -> Namespace:
    """Parse the command's arguments.

    Raises:
        ConfigError: an unknown flag, a value that it does not take, or a --config-dir that does not exist.
    """

    def fail(message: str) -> NoReturn:
        raise ConfigError(f"{message}; write flags that {typed_command()} --hydra-help lists, then KEY=VALUE.")

    parser = get_args_parser()
    parser.error = fail  # type: ignore[method-assign]
    flags = parser.parse_args(arguments)
    if flags.config_dir is not None and not Path(flags.config_dir).is_dir():
        reason = "there is no such folder; write one that holds config groups"
        raise ConfigError(f"--config-dir={flags.config_dir}: {reason}, such as FOLDER/model/mine.yaml.")
    return flags
