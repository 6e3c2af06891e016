"""One sentence for any error of composing a configuration or building a plan: the override, and what to write.

The error stays the cause of the ConfigError: HYDRA_FULL_ERROR=1 prints its traceback.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from lockstep.command_line.overrides import OPTIONS, known_keys, option_keys, parse
from lockstep.config_error import (
    ConfigError,
    config_error,
    errors_as,
    option_error,
    shell_quote_override,
    shorten,
    typed_command,
)
from lockstep.schemas.coerce import unknown_key

Attempt = Callable[[list[str]], object]
"""What raised the error, to be called again with fewer overrides."""


def errors_as_config_errors(overrides: Sequence[str], attempt: Attempt) -> AbstractContextManager[None]:
    """Raise a ConfigError for whatever error composing a configuration or building a plan raises."""
    return errors_as(lambda error: explain(error, overrides, attempt))


def explain(error: Exception, overrides: Sequence[str], attempt: Attempt) -> ConfigError:
    """Return a ConfigError that names the override which causes the error, with the error as its cause."""
    words = [word for word in overrides if not word.startswith("-")]
    culprits = _culprits(error, words, attempt)
    parsed = parse(culprits)
    refusal = _missing_option(error)
    if refusal is None and isinstance(error, OverrideParseException):
        refusal = _unreadable(str(error.override))
    if refusal is None and len(culprits) == len(parsed) == 1:
        refusal = _explain_override(error, parsed[0])
    if refusal is None:
        named, reason = shorten(" ".join(culprits)) or "the configuration", shorten(" ".join(str(error).split()))
        if isinstance(error, HydraException | OmegaConfBaseException):
            refusal = ConfigError(f"{named}: {reason}")
        else:
            hint = f"KEY=VALUE as {typed_command()} --help lists them"
            refusal = ConfigError(f"{named}: this cannot be composed ({type(error).__name__}: {reason}); write {hint}.")
    refusal.__cause__ = error
    return refusal


def _culprits(error: Exception, words: list[str], attempt: Attempt) -> list[str]:
    """Return the override that raises the same error alone, or all of them if none does."""
    for word in words:
        try:
            attempt([word])
        except Exception as other:
            if (type(other), str(other)) == (type(error), str(error)):
                return [word]
    return words


def _missing_option(error: Exception) -> ConfigError | None:
    if not isinstance(error, MissingConfigException) or not error.missing_cfg_file:
        return None
    group, _, option = error.missing_cfg_file.rpartition("/")
    options = sorted(error.options or OPTIONS.get(group, []))
    return option_error(group, option, "there is no such option", options) if options else None


def _explain_override(error: Exception, override: Override) -> ConfigError | None:
    """Return what is wrong with an override that Hydra could parse, or None if nothing is known of it."""
    key, typed = override.key_or_group, shorten(override.input_line or "")
    value = typed.partition("=")[2]
    if not key:
        return ConfigError(f"{typed}: this has no key; write KEY=VALUE.")
    if override.is_sweep_override():
        first = value.partition(",")[0]
        return ConfigError(f"{typed}: several values make a sweep; write -m in front of them, or {key}={first}.")
    if isinstance(error.__cause__, ConfigAttributeError | ConfigKeyError) and not key.startswith("hydra"):
        return _unknown(key, value)
    if override.is_delete():
        return ConfigError(f"{typed}: a key cannot be removed; write {key}=VALUE.")
    if override.is_add() and key in known_keys():
        return ConfigError(f"{typed}: the key exists already; write {key}={value}, without the plus sign.")
    return None


def _unreadable(override: str) -> ConfigError:
    """Return how to quote the value, since most of these have a space, `=` or a letter that is not ASCII in it."""
    key, equals, value = override.partition("=")
    hint = f"{shorten(shell_quote_override(key, value))}, quotes and all"
    if not equals or not re.fullmatch(r"[A-Za-z_][\w./@]*", key, re.ASCII) or set(value) & set("'\"[](){}"):
        hint = "KEY=VALUE, or \"KEY='VALUE'\" if it is unusual"
    return ConfigError(f"{shorten(override)}: this cannot be parsed; write {hint}.")


def _unknown(key: str, value: str) -> ConfigError:
    """Return the error for a key that the chosen options do not have, though others may."""
    group, _, name = key.rpartition(".")
    if name == "name" and group in OPTIONS:
        return config_error(key, value, "an option is chosen by its group", f"{group}={value or OPTIONS[group][0]}")
    group = key.partition(".")[0]
    if options := option_keys().get(key):
        hint = " or ".join(f"{group}={option}" for option in options)
        return config_error(key, value, f"the chosen {group} has no such key", f"{hint} with it")
    return unknown_key(key, value, known_keys())
