"""Hydra's half: a configuration composed from overrides, and Hydra's errors put into one sentence."""

import re
from pathlib import Path
from traceback import extract_tb

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from lockstep.choices import GROUPS
from lockstep.help import help_page
from lockstep.refusal import Refusal, refuse
from lockstep.typed import unknown_key

HYDRA_ERRORS = (HydraException, OmegaConfBaseException, ValueError, OSError)
"""What composing raises, and making a run's folder; `explained` tells which of them are the user's to mend."""

CONF = Path(__file__).parents[2] / "conf"

OmegaConf.register_new_resolver("help_page", lambda: help_page(CONF), replace=True)


def compose_job(overrides: list[str]) -> tuple[DictConfig, Path]:
    """The configuration of one job and the folder it is to run in."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        try:
            config = compose("train", overrides, return_hydra_config=True)
            run_dir = Path(config.hydra.run.dir).absolute()
        except HYDRA_ERRORS as error:
            raise explained(error) from None
    with open_dict(config):
        del config["hydra"]
    return config, run_dir


def explained(error: Exception) -> Refusal:
    """What Hydra did not like, as a refusal that names the key and what to write instead.

    Hydra tells its errors apart by their words alone; words that are not known here are shown as they are.

    Raises:
        ValueError, OSError: `error` itself, where it is not of Hydra's making.
    """
    text = str(error)
    if "Config group override must be a string or a list" in text:
        return Refusal("null: a group takes the name of one of its options; leave GROUP=null out.")
    if isinstance(error, OSError) and any(frame.name == "mkdir" for frame in extract_tb(error.__traceback__)):
        why = f"the run's folder cannot be made ({error.strerror})"
        return refuse("hydra.run.dir", error.filename, why, "a folder that can, or start the command elsewhere")
    if not isinstance(error, HydraException | OmegaConfBaseException):
        raise error
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
    if found := re.search(r"Could not override '([^'@]+)|Key '[^']+' is not in struct\s+full_key: (\S+)", text):
        return unknown(next(filter(None, found.groups())))
    if named := re.search(r"override '([^'@]+)'?. No match in the defaults list", text):
        return unknown(named.group(1))
    return Refusal(" ".join(text.split()))


def unknown(key: str) -> Refusal:
    """The refusal of a key that the chosen options do not have: other options may."""
    group, _, name = key.rpartition(".")
    owners = [path.stem for path in sorted((CONF / group).glob("*.yaml")) if group and name in OmegaConf.load(path)]
    if owners:
        instead = " or ".join(f"{group}={owner}" for owner in owners)
        return Refusal(f"{key}: the chosen {group} has no such key; write {instead} with it.")
    return unknown_key(key, known_keys())


def known_keys() -> list[str]:
    """Every key that may be written: groups, their options' keys, top-level keys."""
    top = [str(key) for key in OmegaConf.load(CONF / "train.yaml") if key not in ("defaults", "hydra")]
    options = (path for group in GROUPS for path in (CONF / group).glob("*.yaml"))
    own = {f"{path.parent.name}.{key!s}" for path in options for key in OmegaConf.load(path) if key != "name"}
    return [*top, *GROUPS, "experiment", *sorted(own)]
