"""Lockstep: the same nets under every parallel strategy, from one command.

The names are imported on first use: the fork server and each rank would import Hydra with them.
"""

import signal
import sys

if (  # `python -m lockstep.…`: as in train.py
    sys.argv[:1] == ["-m"]
    and any(word.startswith(f"{__name__}.") for word in sys.orig_argv)
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from typing import TYPE_CHECKING

from lockstep.base.lazy import lazy_names

if TYPE_CHECKING:
    from lockstep.base.config_error import ConfigError
    from lockstep.check.command import check
    from lockstep.command.inference import load
    from lockstep.command.job import run
    from lockstep.command.run_result import RunResult
    from lockstep.launch.failure import RankFailed
    from lockstep.runs.compare import compare
    from lockstep.runs.recorder import Recorder

__all__ = ["ConfigError", "RankFailed", "Recorder", "RunResult", "check", "compare", "load", "run"]

__getattr__, __dir__ = lazy_names(
    __name__,
    "base.config_error.ConfigError check.command.check command.inference.load command.job.run",
    "command.run_result.RunResult launch.failure.RankFailed runs.compare.compare runs.recorder.Recorder",
)
