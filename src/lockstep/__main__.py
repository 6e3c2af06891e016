"""The command `lockstep` or `python -m lockstep`; in a checkout train.py calls it."""

import signal
import sys

from lockstep.early_start import start_early


def main() -> None:
    """Compose a job (or a sweep of them), run it, print the result."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during the imports ends the process without a traceback
    start_early(sys.argv[1:])  # the fork server imports while this process imports Hydra
    from lockstep import cli

    cli.main()


if __name__ == "__main__":
    main()
