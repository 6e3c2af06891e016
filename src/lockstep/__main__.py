"""The command of an installed package, `lockstep` or `python -m lockstep`: what train.py is in a checkout."""

import signal
import sys

from lockstep.conf import CONF
from lockstep.early_start import start_early


def main() -> None:
    """Compose a job (or a sweep of them), run it, print the result."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while it imports just ends it, without a traceback
    start_early(sys.argv[1:])  # the fork server imports while this process imports Hydra
    import hydra
    from omegaconf import DictConfig

    from lockstep.cli import command, hydra_job

    @hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
    def job(config: DictConfig) -> object:
        return hydra_job(config)

    command(job)


if __name__ == "__main__":
    main()
