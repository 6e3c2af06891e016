"""One sentence for any error of composing a configuration or building a plan: the override, and what to write.

The error stays the cause of the ConfigError: HYDRA_FULL_ERROR=1 prints its traceback.
"""

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from lockstep.base.config_error import (
    ConfigError,
    as_typed,
    config_error,
    errors_as,
    nearest,
    option_error,
    shorten,
    typed_command,
)
from lockstep.base.private_api.hydra import get_args_parser
from lockstep.command.compose import OPTIONS, compose_job, nested, options_with, parse
from lockstep.plan.schemas.coerce import unknown_key
from lockstep.plan.schemas.former import synonym
from lockstep.plan.schemas.groups import PARTS, is_below
from lockstep.plan.schemas.target import KEY

SENTENCES = {
    r"Missing mandatory value: .+\s+full_key: (\S+)": r"\1: the chosen option needs it; write \1=VALUE",
    r"Ambiguous value for argument '(.+?)=(.+)'": (
        r"\1=\2: several values are a list or a sweep; write -m \1=\2 to run a job for each, or \1=[\2] for a list"
    ),
    r"Unknown plugin class : 'hydra_plugins\.(\w+)": r"\1: Hydra needs this package; write pip install \1 first",
    r"Could not override '(\w+)'\.\s+No match": r"\1: there is no such group with --config-name; write KEY=VALUE",
}
"""What Hydra says over several lines, and one sentence in its place."""


def planning(overrides: Sequence[str]) -> AbstractContextManager[None]:
    """Raise a ConfigError that names the override for any error of composing a configuration or building a plan."""
    return errors_as(lambda error: explain(error, overrides))


def explain(error: Exception, overrides: Sequence[str]) -> ConfigError:
    """Return a ConfigError with the error as its cause: about an unknown option or key, else in Hydra's words."""
    refusal = _of_group(error, overrides) or _of_key(error, overrides) or _in_words(error, overrides)
    refusal.__cause__ = error
    return refusal


def _of_group(error: Exception, overrides: Sequence[str]) -> ConfigError | None:
    """Return the error of an option that a group does not have, `logger=null` among them."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, option = error.missing_cfg_file.rpartition("/")
    elif "override must be a string or a list" in str(error):
        groups = [(word.key_or_group, word.value()) for word in parse(overrides) if word.key_or_group in OPTIONS]
        wrong = [(key, as_typed(value)) for key, value in groups if not isinstance(value, str | list)]
        group, option = (*wrong, ("", ""))[0]
    else:
        return None
    reason, hint = "there is no such option", synonym(f"{group}={option}")
    if hint is not None:
        return config_error(group, option, reason, hint)
    options = getattr(error, "options", None) or OPTIONS.get(group, [])
    return option_error(group, option, reason, sorted(options)) if options else None


def _of_key(error: Exception, overrides: Sequence[str]) -> ConfigError | None:
    if not isinstance(error.__cause__, ConfigAttributeError | ConfigKeyError):
        return None
    words = [word for word in parse(overrides) if not isinstance(word.value(), dict)]
    return next((_missing_key(word, overrides) for word in words if f"'{word.key_or_group}'" in str(error)), None)


def _missing_key(override: Override, overrides: Sequence[str]) -> ConfigError:
    """Return the error of a key that the configuration does not have: a former word, a misspelling, an argument."""
    key, typed = override.key_or_group, str(override.input_line).partition("=")[2]
    composed, hint, options = _composed_keys(overrides), synonym(f"{key}={typed}"), options_with(key)
    parent, _, name = key.rpartition(".")
    target = str(composed.get(f"{parent}.{KEY}", "lockstep."))
    is_known = target.startswith("lockstep.") or (is_below(key, PARTS) and bool(hint or options))
    siblings = [each.rpartition(".")[2] for each in composed if each.rpartition(".")[0] == parent]
    if not is_known and not nearest(name, siblings):
        return config_error(key, typed, f"the YAML of {target} has no such key", f"+{key}={typed} to add this argument")
    is_switch = typed in ("true", "false")
    fitting = [each for each, default in composed.items() if not is_switch or isinstance(default, bool)]
    refusal = unknown_key(key, typed, [each for each in fitting if typed in OPTIONS.get(each, [typed])])
    group, *names = key.split(".")
    if options and not hint and ("did you mean" not in str(refusal) or names[0] in options):
        return config_error(key, typed, f"the chosen {group} has no such key", f"{group}={' or '.join(options)}")
    return refusal


def _composed_keys(overrides: Sequence[str]) -> dict[str, Any]:
    """Return all keys of the chosen options, or of the default ones, with their values."""
    chosen = [word for word in overrides if word.partition("=")[0] in OPTIONS or word.startswith("hydra.")]
    if folder := get_args_parser().parse_known_args(overrides)[0].config_dir:
        chosen += [f"hydra.searchpath=[file://{Path(folder).absolute()}]"]
    try:
        config, _ = compose_job(chosen)
    except Exception:  # those of a sweep, for example
        config, _ = compose_job([])
    return dict(nested(OmegaConf.to_container(config, resolve=False)))


def _in_words(error: Exception, overrides: Sequence[str]) -> ConfigError:
    """Return the error of what cannot be parsed or composed, in Hydra's words unless these fill several lines."""
    for pattern, sentence in SENTENCES.items():
        if match := re.search(pattern, str(error)):
            return ConfigError(f"{match.expand(sentence)}.")
    if isinstance(error, OverrideParseException):
        hint = synonym(str(error.override)) or "KEY=VALUE, or \"KEY='VALUE'\" if it is unusual"
        return ConfigError(f"{shorten(str(error.override))}: this cannot be parsed; write {hint}.")
    named = shorten(" ".join(word for word in overrides if not word.startswith("-"))) or "the configuration"
    reason = shorten(" ".join(str(error).split()))
    if not isinstance(error, HydraException | OmegaConfBaseException):
        hint = f"KEY=VALUE as {typed_command()} --help lists them"
        reason = f"this cannot be composed ({type(error).__name__}: {reason}); write {hint}."
    return ConfigError(f"{named}: {reason}")
