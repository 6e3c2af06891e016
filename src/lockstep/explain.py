"""Hydra's errors in one sentence that names the key and what to write instead.

Hydra tells its errors apart by their words alone; words that are not known here are shown as they are.
"""

import re
from collections.abc import Callable
from pathlib import Path
from traceback import extract_tb

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lockstep.choices import GROUPS
from lockstep.refusal import Refusal, refuse
from lockstep.typed import unknown_key

CONF = Path(__file__).parents[2] / "conf"
HYDRA_ERRORS = (HydraException, OmegaConfBaseException, ValueError, OSError)
"""What composing raises, and making a run's folder; `explained` tells which of them are the user's to mend."""


def explained(error: Exception) -> Refusal:
    """What Hydra did not like, as a refusal.

    Raises:
        ValueError, OSError: `error` itself, where it is not of Hydra's making.
    """
    text = str(error)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options is not None:
        group, _, option = error.missing_cfg_file.rpartition("/")
        return refuse(group, option, "there is no such option", f"one of {', '.join(sorted(error.options))}")
    if isinstance(error, OverrideParseException):
        example = "write KEY=VALUE, or \"KEY='VALUE'\" if it is unusual"
        return Refusal(f"{error.override!s}: this cannot be read; {example}.")
    if isinstance(error, OSError) and any(frame.name == "mkdir" for frame in extract_tb(error.__traceback__)):
        why = f"the run's folder cannot be made ({error.strerror})"
        return refuse("hydra.run.dir", error.filename, why, "a folder that can, or start the command elsewhere")
    for words, sentence in SENTENCES.items():
        if found := re.search(words, text):
            return sentence(*found.groups())
    if isinstance(error, HydraException | OmegaConfBaseException):
        return Refusal(" ".join(text.split()))
    raise error


def without_plugin(error: RuntimeError) -> Refusal:
    """Hydra's words for a launcher or sweeper that is not installed; any other error is raised again."""
    if not str(error).startswith("Unknown plugin class"):
        raise error
    package = str(error).partition("hydra_plugins.")[2].split(".")[0].replace("_", "-")
    return Refusal(f"{package or error}: this plugin of Hydra is not installed; install it: pip install {package}.")


def no_option() -> Refusal:
    return Refusal("null: a group takes the name of one of its options; leave GROUP=null out.")


def present(key: str) -> Refusal:
    return Refusal(f"+{key}: the key is there already; write {key}=VALUE without the plus sign.")


def absent(key: str) -> Refusal:
    return Refusal(f"~{key}: a key cannot be taken away; write {key}=VALUE.")


def several(key: str, values: str) -> Refusal:
    instead = f"-m in front of them, or {key}={values.split(',')[0]}"
    return refuse(key, values, "several values make a sweep", instead)


def unknown(key: str) -> Refusal:
    """The chosen options do not have the key: other options may."""
    group, _, name = key.rpartition(".")
    owners = [path.stem for path in sorted((CONF / group).glob("*.yaml")) if group and name in OmegaConf.load(path)]
    if owners:
        instead = " or ".join(f"{group}={owner}" for owner in owners)
        return Refusal(f"{key}: the chosen {group} has no such key; write {instead} with it.")
    return unknown_key(key, known_keys())


SENTENCES: dict[str, Callable[..., Refusal]] = {
    r"Config group override must be a string or a list": no_option,
    r"Multiple values for (\S+)\. ": present,
    r"An item is already at '([^']+)'": present,
    r"Could not delete from config. '([^']+)' does not exist": absent,
    r"Ambiguous value for argument '([^=]+)=(.*)'": several,
    r"Could not override '([^'@]+)'?. No match in the defaults list": unknown,
    r"Could not override '([^'@]+)": unknown,
    r"Key '[^']+' is not in struct\s+full_key: (\S+)": unknown,
}
"""From Hydra's words to the sentence that says it here, with what is in the brackets."""


def known_keys() -> list[str]:
    """Every key that may be written: groups, their options' keys, top-level keys."""
    train = {str(key): value for key, value in OmegaConf.load(CONF / "train.yaml").items()}
    top = [key for key in train if key not in ("defaults", "hydra")]
    top += [f"{key}.{name!s}" for key in top if isinstance(train[key], DictConfig) for name in train[key]]
    options = (path for group in GROUPS for path in (CONF / group).glob("*.yaml"))
    own = {f"{path.parent.name}.{key!s}" for path in options for key in OmegaConf.load(path) if key != "name"}
    return [*top, *GROUPS, "experiment", *sorted(own)]
