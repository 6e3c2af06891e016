"""The configuration that Hydra composes from overrides, and the folder of its run."""

from collections.abc import Iterable
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf, open_dict

from lockstep.command_line.help import help_page
from lockstep.command_line.overrides import check_words
from lockstep.conf import CONF
from lockstep.strategies import STRATEGIES


def ranks_of(strategy: str, devices: int) -> int:
    """Return how many processes a strategy has on one machine, for launchers that start them."""
    return devices if STRATEGIES[strategy].distributed else 1


def gpus_of(accelerator: str, devices: int) -> int | None:
    return devices if accelerator == "gpu" else None


for resolver in (help_page, ranks_of, gpus_of):
    OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)


def compose_job(overrides: list[str]) -> tuple[DictConfig, Path]:
    """Return the configuration of one job, and the folder of its run. Hydra's errors are for `hydra_errors.explain`."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", overrides, return_hydra_config=True)
        run_dir = Path(config.hydra.run.dir).absolute()
    with open_dict(config):
        del config["hydra"]
    check_words(overrides, config)
    return config, run_dir


def sets_folder(overrides: Iterable[str]) -> bool:
    """Whether the overrides name the folder of the run; otherwise the clock does."""
    return any(override.lstrip("+").startswith(("hydra.run.dir=", "hydra.sweep.dir=")) for override in overrides)
