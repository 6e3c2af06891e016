"""Hydra's half: a configuration composed from overrides, and Hydra's errors put into one sentence."""

import re
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from lockstep.build import unknown_key
from lockstep.choices import GROUPS
from lockstep.help import help_page
from lockstep.refusal import Refusal, refuse

CONF = Path(__file__).parents[2] / "conf"

OmegaConf.register_new_resolver("help_page", lambda: help_page(CONF), replace=True)


def compose_job(overrides: list[str]) -> tuple[DictConfig, Path]:
    """The configuration of one job and the folder it is to run in."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        try:
            config = compose("train", overrides, return_hydra_config=True)
            run_dir = Path(config.hydra.run.dir)
        except (HydraException, OmegaConfBaseException) as error:
            raise explained(error) from None
    with open_dict(config):
        del config["hydra"]
    return config, run_dir


def explained(error: Exception) -> Refusal:
    """What Hydra did not like, as a refusal that names the key and what to write instead."""
    text = str(error)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options is not None:
        group, _, option = error.missing_cfg_file.rpartition("/")
        return refuse(group, option, "there is no such option", f"one of {', '.join(sorted(error.options))}")
    if isinstance(error, OverrideParseException):
        return Refusal(
            f"{error.override!s}: this cannot be read; write KEY=VALUE, with quotes around special characters."
        )
    if several := re.search(r"Ambiguous value for argument '([^=]+)=(.*)'", text):
        key, value = several.groups()
        return refuse(key, value, "several values make a sweep", f"-m in front of them, or {key}={value.split(',')[0]}")
    if unknown := re.search(r"Could not override '([^'@]+)|Key '[^']+' is not in struct\s+full_key: (\S+)", text):
        return unknown_key(next(filter(None, unknown.groups())), known_keys())
    if named := re.search(r"override '([^'@]+)'?. No match in the defaults list", text):
        return unknown_key(named.group(1), known_keys())
    return Refusal(" ".join(text.split()))


def known_keys() -> list[str]:
    """Every key that may be written: groups, their options' keys, top-level keys."""
    top = [str(key) for key in OmegaConf.load(CONF / "train.yaml") if key not in ("defaults", "hydra")]
    options = (path for group in GROUPS for path in (CONF / group).glob("*.yaml"))
    own = {f"{path.parent.name}.{key!s}" for path in options for key in OmegaConf.load(path)}
    return [*top, *GROUPS, "experiment", *sorted(own)]
