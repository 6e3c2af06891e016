"""Compose a job (or a sweep of them), run it, print the result: `python train.py strategy=ddp devices=2`."""

import hydra
from omegaconf import DictConfig

from lockstep.cli import command, hydra_job


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(config: DictConfig) -> object:
    return hydra_job(config)


if __name__ == "__main__":
    command(main)
