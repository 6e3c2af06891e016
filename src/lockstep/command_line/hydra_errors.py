"""Hydra's errors in one sentence that names the key and what to write instead.

Hydra's errors differ by their text alone; a text that is not known here is shown as it is. Any other error while a plan
is made becomes a sentence that names the override. It hides no bug: the error stays the cause of the ConfigError, and
HYDRA_FULL_ERROR=1 shows its traceback.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from traceback import extract_tb

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lockstep.conf import CONF
from lockstep.config_error import (
    ConfigError,
    config_error,
    errors_as,
    option_error,
    shell_quote_override,
    shorten,
    typed_command,
)
from lockstep.disk import folder_error
from lockstep.schemas.coerce import unknown_key
from lockstep.schemas.groups import GROUPS, SEVERAL

OPTIONS = {group: sorted(path.stem for path in (CONF / group).glob("*.yaml")) for group in (*GROUPS, "experiment")}
"""The options of each group, by the files that they are."""

HYDRA_ERRORS = (HydraException, OmegaConfBaseException, ValueError, OSError)
"""What composing raises, and making a run's folder; `explained` decides which of them are the user's to correct."""


Attempt = Callable[[list[str]], object]
"""What has raised the error, to be done again with fewer overrides."""


def errors_as_config_errors(overrides: Sequence[str], attempt: Attempt) -> AbstractContextManager[None]:
    """Around what makes a configuration or a plan of overrides: whatever is raised within becomes one sentence."""
    return errors_as(lambda error: unexpected_as_config_error(error, overrides, attempt))


def unexpected_as_config_error(error: Exception, overrides: Sequence[str], attempt: Attempt) -> ConfigError:
    """Hydra's own errors as `explained` has them, any other with the override that it comes from, and as its cause."""
    try:
        refusal = explained(error, overrides)
        refusal.__cause__ = None
    except Exception:
        named = shorten(" ".join(culprit(error, overrides, attempt))) or "the configuration"
        reason = shorten(" ".join(f"{type(error).__name__}: {error}".split()))
        hint = f"KEY=VALUE as {typed_command()} --help has it"
        refusal = odd_option(overrides) or ConfigError(f"{named}: this cannot be composed ({reason}); write {hint}.")
        refusal.__cause__ = error
    return refusal


def culprit(error: Exception, overrides: Sequence[str], attempt: Attempt) -> list[str]:
    """The override that raises the same error alone; all of them where none does."""
    words = [override for override in overrides if not override.startswith("-")]
    for word in words:
        try:
            attempt([word])
        except Exception as again:
            if (type(again), str(again)) == (type(error), str(error)):
                return [word]
    return words


def explained(error: Exception, overrides: Sequence[str] = ()) -> ConfigError:
    """What Hydra did not like about the overrides, as a refusal.

    Raises:
        ValueError, OSError: `error` itself, where it is not of Hydra's making.
    """
    text = str(error)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options is not None:
        group, _, option = error.missing_cfg_file.rpartition("/")
        return option_error(group, option, "there is no such option", sorted(error.options))
    if isinstance(error, OverrideParseException):
        return unreadable(str(error.override))
    if isinstance(error, OSError) and any(frame.name == "mkdir" for frame in extract_tb(error.__traceback__)):
        return folder_error(error, "hydra.sweep.dir" if {"-m", "--multirun"} & set(overrides) else "hydra.run.dir")
    for nameless in (override for override in overrides if override.startswith("=")):
        return ConfigError(f"{nameless}: this has no key; write KEY=VALUE.")
    if NO_OPTION in text:
        reason = "null: a group takes the name of one of its options"
        return odd_option(overrides) or ConfigError(f"{reason}; write that, or leave GROUP=null out.")
    for words, sentence in SENTENCES.items():
        if match := re.search(words, text):
            return ConfigError(sentence.format(*map(shorten, match.groups())))
    if match := re.search(r"Could not load '([^/']+)/([^']+)'", text):
        return option_error(match[1], match[2], "there is no such option", OPTIONS.get(match[1], []))
    for words in UNKNOWN_KEY:
        if match := re.search(words, text):
            return unknown(*match.groups())
    if isinstance(error, OmegaConfBaseException) and error.full_key:
        return ConfigError(f"{error.full_key}: {text.splitlines()[0]}; write a value for it.")
    if isinstance(error, HydraException | OmegaConfBaseException):
        return ConfigError(" ".join(text.split()))
    raise error


def unreadable(override: str) -> ConfigError:
    """Say how to quote it: nine in ten of these are a value with a space, `=` or a letter that is not ASCII."""
    key, equals, value = override.partition("=")
    hint = f"{shorten(shell_quote_override(key, value))}, quotes and all"
    if not equals or not re.fullmatch(r"[A-Za-z_][\w./@]*", key, re.ASCII) or set(value) & set("'\"[](){}"):
        hint = "KEY=VALUE, or \"KEY='VALUE'\" if it is unusual"
    return ConfigError(f"{shorten(override)}: this cannot be read; write {hint}.")


NO_NAMES = ("null", "true", "false", "nan", "inf")
"""Values in YAML."""


def odd_option(overrides: Sequence[str]) -> ConfigError | None:
    """The refusal of a group's value that is no name at all, if there is one among the overrides.

    A name that is none of our options is that of a file in another folder of configurations: else Hydra had said so.
    """
    for key, _, value in (override.lstrip("+~").partition("=") for override in overrides):
        options = OPTIONS.get(key, [])
        if options and (not value.isidentifier() or value.lower() in NO_NAMES):
            reason = "a group takes the name of one of its options"
            return config_error(key, value, reason, f"one of {', '.join(options)}, or leave {key}= out")
    return None


def unknown(key: str, value: str = "") -> ConfigError:
    """The chosen options do not have the key: other options may."""
    group, _, name = key.rpartition(".")
    if name == "name" and group in OPTIONS:
        return config_error(key, value, "an option is chosen by its group", f"{group}={value or OPTIONS[group][0]}")
    owners = [path.stem for prefix, path in option_files() if prefix == group and name in OmegaConf.load(path)]
    if owners:
        group = group.partition(".")[0]
        hint = " or ".join(f"{group}={owner}" for owner in owners)
        return config_error(key, value, f"the chosen {group} has no such key", f"{hint} with it")
    return unknown_key(key, value, known_keys())


NO_OPTION = "Config group override must be a string or a list"
THERE = "+{0}: the key is there already; write {0}=VALUE without the plus sign."
NO_CONFIG = (
    "--config-name, --config-path, --config-dir: there is no such configuration; "
    "write --config-dir=FOLDER, a folder that holds groups of your own, or none of them."
)
SENTENCES = {
    r"Multiple values for (\S+)\. ": THERE,
    r"An item is already at '([^']+)'": THERE,
    r"Could not delete from config. '([^']+)' does not exist": "~{0}: a key cannot be taken away; write {0}=VALUE.",
    r"Ambiguous value for argument '([^=]+)=([^,]*)(.*)'": (
        "{0}={1}{2}: several values make a sweep; write -m in front of them, or {0}={1}."
    ),
    r"Unknown plugin class.*?'(?:hydra_plugins\.)?(\w+)": (
        "{0}: this plugin of Hydra is not installed; install it: pip install {0}."
    ),
    r"Error merging override ([^=]+)=([^\n]*)": (
        "{0}={1}: the key takes another kind of value; write {0}=FOLDER, say, or leave it out."
    ),
    r"(?:Cannot find primary config|onfig directory)": NO_CONFIG,
}
"""From Hydra's words to the sentence that says it here, with what is in the brackets."""

UNKNOWN_KEY = (
    r"Could not override '([^'@]+)'(?s:.*) use \+[^=]+=([^\n]*)",
    r"Could not override '([^'@]+)'",
    r"Key '[^']+' is not in struct\s+full_key: (\S+)",
    r"Override ([^@=]+)\S*=(.*) looks like a config group override",
)
"""Hydra's words for a key, and maybe its value, that the configuration does not have."""


def known_keys() -> list[str]:
    """Every key that may be written: groups, their options' keys, top-level keys."""
    train = {str(key): value for key, value in OmegaConf.load(CONF / "train.yaml").items()}
    top = [key for key in train if key not in ("defaults", "hydra")]
    top += [f"{key}.{name!s}" for key in top if isinstance(train[key], DictConfig) for name in train[key]]
    own = {f"{prefix}.{key!s}" for prefix, path in option_files() for key in OmegaConf.load(path) if key != "name"}
    return [*top, *GROUPS, "experiment", *sorted(own)]


def option_files() -> list[tuple[str, Path]]:
    """The file of each option, and what its keys begin with on the command line: `model`, or `logger.csv`."""
    files = (path for group in GROUPS for path in sorted((CONF / group).glob("*.yaml")))
    return [(f"{own.parent.name}.{own.stem}" if own.parent.name in SEVERAL else own.parent.name, own) for own in files]
