"""One sentence for any error of composing a configuration or building a plan: the override, and what to write.

The error stays the cause of the ConfigError: HYDRA_FULL_ERROR=1 prints its traceback.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from lockstep.command_line.overrides import OPTIONS, known_keys
from lockstep.config_error import ConfigError, config_error, errors_as, option_error, shorten, typed_command
from lockstep.schemas.coerce import unknown_key


def planning(overrides: Sequence[str]) -> AbstractContextManager[None]:
    """Raise a ConfigError that names the override for any error of composing a configuration or building a plan."""
    return errors_as(lambda error: explain(error, overrides))


def explain(error: Exception, overrides: Sequence[str]) -> ConfigError:
    """Return a ConfigError with the error as its cause: about an unknown option or key, else in Hydra's words."""
    refusal = None
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, option = error.missing_cfg_file.rpartition("/")
        options = sorted(error.options or OPTIONS.get(group, []))
        refusal = option_error(group, option, "there is no such option", options) if options else None
    elif isinstance(error, OverrideParseException):
        hint = "KEY=VALUE, or \"KEY='VALUE'\" if it is unusual"
        refusal = ConfigError(f"{shorten(str(error.override))}: this cannot be parsed; write {hint}.")
    elif isinstance(error.__cause__, ConfigAttributeError | ConfigKeyError):
        refusal = next((_missing_key(word) for word in overrides if f"'{word.partition('=')[0]}'" in str(error)), None)
    if refusal is None:
        words = [word for word in overrides if not word.startswith("-")]
        named, reason = shorten(" ".join(words)) or "the configuration", shorten(" ".join(str(error).split()))
        if not isinstance(error, HydraException | OmegaConfBaseException):
            hint = f"KEY=VALUE as {typed_command()} --help lists them"
            reason = f"this cannot be composed ({type(error).__name__}: {reason}); write {hint}."
        refusal = ConfigError(f"{named}: {reason}")
    refusal.__cause__ = error
    return refusal


def _missing_key(override: str) -> ConfigError:
    key, _, value = override.partition("=")
    group, keys = key.partition(".")[0], known_keys()
    if key in keys:
        return config_error(key, value, f"the chosen {group} has no such key", f"{group}=… of an option with it")
    return unknown_key(key, value, keys)
