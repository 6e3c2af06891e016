"""Private names of Hydra: the parser of its flags, and the log of its launcher."""

import logging

from hydra._internal.utils import get_args_parser as get_args_parser


def silence_basic_launcher() -> None:
    """It logs each job under this name; a version with another name says it beside our own line."""
    logging.getLogger("hydra._internal.core_plugins.basic_launcher").setLevel(logging.WARNING)
