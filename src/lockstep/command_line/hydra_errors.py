"""One sentence for any error of composing a configuration or building a plan: the override, and what to write.

The error stays the cause of the ConfigError: HYDRA_FULL_ERROR=1 prints its traceback.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from lockstep.command_line.overrides import OPTIONS, known_keys, parse
from lockstep.config_error import ConfigError, config_error, errors_as, option_error, shorten, typed_command
from lockstep.schemas.coerce import unknown_key


def errors_as_config_errors(overrides: Sequence[str]) -> AbstractContextManager[None]:
    """Raise a ConfigError for whatever error composing a configuration or building a plan raises."""
    return errors_as(lambda error: explain(error, overrides))


def explain(error: Exception, overrides: Sequence[str]) -> ConfigError:
    """Return a ConfigError that names the override which causes the error, with the error as its cause."""
    refusal = None
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, option = error.missing_cfg_file.rpartition("/")
        options = sorted(error.options or OPTIONS.get(group, []))
        refusal = option_error(group, option, "there is no such option", options) if options else None
    elif isinstance(error, OverrideParseException):
        hint = "KEY=VALUE, or \"KEY='VALUE'\" if it is unusual"
        refusal = ConfigError(f"{shorten(str(error.override))}: this cannot be parsed; write {hint}.")
    elif isinstance(error, ConfigCompositionException):
        refusal = next(filter(None, (_explain_override(error, override) for override in parse(overrides))), None)
    if refusal is None:
        words = [word for word in overrides if not word.startswith("-")]
        named, reason = shorten(" ".join(words)) or "the configuration", shorten(" ".join(str(error).split()))
        if not isinstance(error, HydraException | OmegaConfBaseException):
            hint = f"KEY=VALUE as {typed_command()} --help lists them"
            reason = f"this cannot be composed ({type(error).__name__}: {reason}); write {hint}."
        refusal = ConfigError(f"{named}: {reason}")
    refusal.__cause__ = error
    return refusal


def _explain_override(error: ConfigCompositionException, override: Override) -> ConfigError | None:
    """Return what is wrong with an override, or None if it is not the one that Hydra names."""
    key, typed = override.key_or_group, shorten(override.input_line or "")
    value = typed.partition("=")[2]
    if not any(quoted in str(error) for quoted in (f"'{key}'", f"'{key}=", f" {key}.")):
        return None
    if override.is_sweep_override():
        first = value.partition(",")[0]
        return ConfigError(f"{typed}: several values make a sweep; write -m in front of them, or {key}={first}.")
    if override.is_delete():
        return ConfigError(f"{typed}: a key cannot be removed; write {key}=VALUE.")
    keys, group = known_keys(), key.partition(".")[0]
    if override.is_add() and key in keys:
        return ConfigError(f"{typed}: the key exists already; write {key}={value}, without the plus sign.")
    if key.startswith("hydra") or not isinstance(error.__cause__, ConfigAttributeError | ConfigKeyError):
        return None
    if key == f"{group}.name":
        return config_error(key, value, "an option is chosen by its group", f"{group}={value}")
    if key in keys:
        return config_error(key, value, f"the chosen {group} has no such key", f"{group}=… of an option with it")
    return unknown_key(key, value, keys)
