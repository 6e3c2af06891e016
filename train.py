"""Compose a job (or a sweep of them), run it, print the result: `python train.py strategy=ddp devices=2`."""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while it imports just ends it, without a traceback

import sys

from lockstep.early_start import start_early

if __name__ == "__main__":
    start_early(sys.argv[1:])  # the fork server imports while this process imports Hydra

import hydra
from omegaconf import DictConfig

from lockstep.cli import command, hydra_job


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(config: DictConfig) -> object:
    return hydra_job(config)


if __name__ == "__main__":
    command(main)
