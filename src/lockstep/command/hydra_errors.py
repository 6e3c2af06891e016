"""One sentence for any error of composing a configuration or building a plan; HYDRA_FULL_ERROR=1 prints its cause."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from lockstep.base.config_error import ConfigError, as_typed, config_error, errors_as, option_error, shorten
from lockstep.command.compose import OPTIONS, compose_job, parse
from lockstep.plan.schemas.coerce import unknown_key
from lockstep.plan.schemas.former import synonym
from lockstep.plan.schemas.groups import TARGETS, is_below, key_of, leaves


@contextmanager
def planning(overrides: Sequence[str]) -> Iterator[None]:
    """Raise a ConfigError for any error of the block: about an option, a key or a word, or in Hydra's words."""

    def explain(error: Exception) -> ConfigError:
        refusal = _of_option(error, overrides) or _of_key(error, overrides) or _in_words(error, overrides)
        refusal.__cause__ = error
        return refusal

    with errors_as(explain):
        yield


def _of_option(error: Exception, overrides: Sequence[str]) -> ConfigError | None:
    """Return the error of an option that a group does not have, `logger=null` among them."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, option = error.missing_cfg_file.rpartition("/")
    elif "override must be a string or a list" in str(error):
        chosen = ((word.key_or_group, word.value()) for word in parse(overrides) if word.key_or_group in OPTIONS)
        wrong = ((key, as_typed(value)) for key, value in chosen if not isinstance(value, str | list))
        group, option = next(wrong, ("", ""))
    else:
        return None
    if (hint := synonym(f"{group}={option}")) is not None:
        return config_error(group, option, "there is no such option", hint)
    options = getattr(error, "options", None) or OPTIONS.get(group, [])
    return option_error(group, option, "there is no such option", sorted(options)) if options else None


def _of_key(error: Exception, overrides: Sequence[str]) -> ConfigError | None:
    """Return the error of a missing key, with the key that was probably meant; of a target, how to add an argument."""
    words = [word for word in parse(overrides) if f"'{word.key_or_group}'" in str(error)]
    words = [word for word in words if not isinstance(word.value(), dict)]
    if not isinstance(error.__cause__, ConfigAttributeError | ConfigKeyError) or not words:
        return None
    key, typed = words[0].key_or_group, str(words[0].input_line).partition("=")[2]
    if (hint := synonym(f"{key}={typed}")) is not None:
        return config_error(key, typed, "there is no such key", hint)
    try:
        config, _ = compose_job([word for word in overrides if key_of(word) in OPTIONS])
    except Exception:  # those of a sweep, for example
        config, _ = compose_job([])
    refusal = unknown_key(key, typed, [*OPTIONS, *dict(leaves(OmegaConf.to_container(config, resolve=False)))])
    if "did you mean" not in str(refusal) and is_below(key, TARGETS):
        return config_error(key, typed, "there is no such key", f"+{key}=VALUE to add this argument")
    return refusal


def _in_words(error: Exception, overrides: Sequence[str]) -> ConfigError:
    """Return the error of what cannot be parsed or composed, in Hydra's words unless these fill several lines."""
    if match := re.search("Ambiguous value for argument '(.+?)=(.+)'", str(error)):
        key, values = match.groups()
        hint = f"-m {key}={values} to run a job for each, or {key}=[{values}] for a list"
        return ConfigError(f"{key}={values}: several values are a list or a sweep; write {hint}.")
    unparsed = [str(error.override)] if isinstance(error, OverrideParseException) else []
    unparsed += [word for word in overrides if word.startswith("=")]
    if unparsed:
        hint = "KEY=VALUE, or \"KEY='VALUE'\" if it is unusual"
        return ConfigError(f"{shorten(unparsed[0])}: this cannot be parsed; write {hint}.")
    words = shorten(" ".join(word for word in overrides if "=" in word and word[0] != "-")) or "the configuration"
    reason = shorten(" ".join(str(error).split()))
    if not isinstance(error, HydraException | OmegaConfBaseException):
        reason = f"this cannot be composed ({type(error).__name__}: {reason})"
    return ConfigError(f"{words}: {reason.rstrip('.')}.")
