"""One sentence for any error of composing a configuration or building a plan: the override, and what to write.

The error stays the cause of the ConfigError: HYDRA_FULL_ERROR=1 prints its traceback.
"""

import re
from collections.abc import Collection, Sequence
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
    r"Interpolation key '(.+)' not found\s+full_key: (\S+)": r"${\1}: \2 refers to it, and there is no such key",
    r"Missing mandatory value: .+\s+full_key: (\S+)": r"\1: the chosen option needs it; write \1=VALUE",
    r"Ambiguous value for argument '(.+?)=(.+)'": (
        r"\1=\2: several values are a list or a sweep; write -m \1=\2 to run a job for each, or \1=[\2] for a list"
    ),
    r"Unknown plugin class : 'hydra_plugins\.(\w+)": r"\1: Hydra needs this package; write pip install \1 first",
    r"BasicSweeper does not support sweep type": (
        "interval(A,B): only a search takes an interval; write -m hydra/sweeper=search optimized_metric=val/acc beside "
        "it, or several values"
    ),
    r"Could not override '(\w+)'\.\s+No match": r"\1: there is no such group with --config-name; write KEY=VALUE",
}
"""What Hydra says over several lines, and one sentence in its place."""


def planning(overrides: Sequence[str]) -> AbstractContextManager[None]:
    """Raise a ConfigError that names the override for any error of composing a configuration or building a plan."""
    return errors_as(lambda error: explain(error, overrides))


def explain(error: Exception, overrides: Sequence[str]) -> ConfigError:
    """Return a ConfigError with the error as its cause: about an unknown option or key, else in Hydra's words."""
    refusal = None
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        refusal = _missing_option(*error.missing_cfg_file.rpartition("/")[::2], error.options or [])
    elif "override must be a string or a list" in str(error):
        groups = [(word.key_or_group, word.value()) for word in parse(overrides) if word.key_or_group in OPTIONS]
        wrong = ((group, value) for group, value in groups if not isinstance(value, str | list))
        refusal = next((_missing_option(group, as_typed(value), []) for group, value in wrong), None)
    elif isinstance(error, OverrideParseException):
        hint = synonym(str(error.override)) or "KEY=VALUE, or \"KEY='VALUE'\" if it is unusual"
        refusal = ConfigError(f"{shorten(str(error.override))}: this cannot be parsed; write {hint}.")
    elif isinstance(error.__cause__, ConfigAttributeError | ConfigKeyError):
        parsed = [word for word in parse(overrides) if not isinstance(word.value(), dict)]
        missing = (word for word in parsed if f"'{word.key_or_group}'" in str(error))
        refusal = next((_missing_key(word, overrides) for word in missing), None)
    for pattern, sentence in SENTENCES.items():
        if match := re.search(pattern, str(error)):
            refusal = ConfigError(f"{match.expand(sentence)}.")
    if refusal is None:
        words = [word for word in overrides if not word.startswith("-")]
        named, reason = shorten(" ".join(words)) or "the configuration", shorten(" ".join(str(error).split()))
        if not isinstance(error, HydraException | OmegaConfBaseException):
            hint = f"KEY=VALUE as {typed_command()} --help lists them"
            reason = f"this cannot be composed ({type(error).__name__}: {reason}); write {hint}."
        refusal = ConfigError(f"{named}: {reason}")
    refusal.__cause__ = error
    return refusal


def _missing_option(group: str, option: str, options: Collection[str]) -> ConfigError | None:
    reason, hint, options = "there is no such option", synonym(f"{group}={option}"), options or OPTIONS.get(group, [])
    if hint is not None:
        return config_error(group, option, reason, hint)
    return option_error(group, option, reason, sorted(options)) if options else None


def _missing_key(override: Override, overrides: Sequence[str]) -> ConfigError:
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
