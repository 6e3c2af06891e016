"""Lockstep: the same nets under every parallel strategy, from one command."""

import signal
import sys

if (  # `python -m lockstep.…`: as in train.py
    sys.argv[:1] == ["-m"]
    and any(word.startswith(f"{__name__}.") for word in sys.orig_argv)
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from lockstep.config_error import ConfigError
from lockstep.job import run
from lockstep.launch import RankFailed

__all__ = ["ConfigError", "RankFailed", "run"]
