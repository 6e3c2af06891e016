"""The command `lockstep` or `python -m lockstep`; in a checkout train.py calls it.

It starts the fork server after a first look at the command line, so that the server imports while this process imports
Hydra. A wrong guess costs time and nothing else.
"""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from lockstep.base.config_error import ConfigError
from lockstep.launch import collect_rarely, forkserver
from lockstep.launch.external_launcher import rank_from_env
from lockstep.launch.signals import ENDING, end_command
from lockstep.plan.schemas.run import ENGINES, EVERY_RUN


def main() -> None:
    """Compose a job (or a sweep of them), run it, print the result."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during the imports ends the process without a traceback
    collect_rarely()
    with suppress(ConfigError, OSError):  # raised again where the ranks start
        if ranks_to_start(sys.argv[1:]):
            for number in ENDING:
                if signal.getsignal(number) is signal.SIG_DFL:
                    signal.signal(number, end_command)
            forkserver.start_forkserver(*ENGINES.values(), *EVERY_RUN)
    from lockstep.command import cli

    cli.main()


def ranks_to_start(words: Sequence[str]) -> bool:
    """Whether these words probably make this process start ranks: a terminal's debugger needs one that it runs."""
    flags = {word for word in words if word.startswith("-")}
    if flags - {"-m", "--multirun"} or rank_from_env() is not None:
        return False
    return bool(flags) or not os.isatty(0) or any(word.startswith(("strategy=", "experiment=")) for word in words)


if __name__ == "__main__":
    main()
