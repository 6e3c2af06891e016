"""Lockstep: the same nets under every parallel strategy, from one command.

`run`, `load` and `RankFailed` are imported on first use: the fork server and each rank would import Hydra with them.
"""

import signal
import sys

if (  # `python -m lockstep.…`: as in train.py
    sys.argv[:1] == ["-m"]
    and any(word.startswith(f"{__name__}.") for word in sys.orig_argv)
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import importlib
from typing import TYPE_CHECKING, Any

from lockstep.config_error import ConfigError

if TYPE_CHECKING:
    from lockstep.inference import load
    from lockstep.job import run
    from lockstep.launch.failure import RankFailed

__all__ = ["ConfigError", "RankFailed", "load", "run"]

MODULES = {"load": "lockstep.inference", "run": "lockstep.job", "RankFailed": "lockstep.launch.failure"}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(MODULES[name]), name)
