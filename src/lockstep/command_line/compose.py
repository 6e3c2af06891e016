"""Hydra's half: a configuration composed from overrides, and the folder of its run."""

from collections.abc import Iterable
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf, open_dict

from lockstep.command_line.help import help_page
from lockstep.command_line.hydra_errors import OPTIONS
from lockstep.command_line.overrides import require_each_option, require_one_option, verbatim
from lockstep.conf import CONF
from lockstep.strategies.registry import STRATEGIES


def ranks_of(strategy: str, devices: int) -> int:
    """Processes of a strategy on one machine, for launchers that start them."""
    return STRATEGIES[strategy].layout(devices).processes


OmegaConf.register_new_resolver("help_page", lambda: help_page(CONF), replace=True)
OmegaConf.register_new_resolver("ranks_of", ranks_of, replace=True)
OmegaConf.register_new_resolver(
    "gpus_of", lambda accelerator, devices: devices if accelerator == "gpu" else None, replace=True
)


def compose_job(overrides: list[str]) -> tuple[DictConfig, Path]:
    """The configuration of one job and the folder it is to run in. Raises what Hydra raises.

    Raises:
        ConfigError: a group that takes one option is given a list.
    """
    require_one_option(overrides, OPTIONS)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", verbatim(overrides), return_hydra_config=True)
        run_dir = Path(config.hydra.run.dir).absolute()
    with open_dict(config):
        del config["hydra"]
    require_each_option(overrides, config)
    return config, run_dir


def folder_given(overrides: Iterable[str]) -> bool:
    """Whether the command says in which folder to run; else the clock names it."""
    return any(override.lstrip("+").startswith(("hydra.run.dir=", "hydra.sweep.dir=")) for override in overrides)
