"""One sentence for any error of composing a configuration or building a plan: the override, and what to write.

The error stays the cause of the ConfigError: HYDRA_FULL_ERROR=1 prints its traceback.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, MissingMandatoryValue, OmegaConfBaseException

from lockstep.command_line.compose import compose_job
from lockstep.command_line.overrides import OPTIONS, options_with, parse
from lockstep.config_error import (
    ConfigError,
    as_typed,
    config_error,
    errors_as,
    is_number,
    nearest,
    option_error,
    shorten,
    typed_command,
)
from lockstep.private_api.hydra import get_args_parser
from lockstep.schemas.coerce import unknown_key
from lockstep.schemas.groups import PARTS, SEVERAL
from lockstep.schemas.keys import is_below, key_of
from lockstep.schemas.synonyms import synonym
from lockstep.schemas.target import KEY


def planning(overrides: Sequence[str]) -> AbstractContextManager[None]:
    """Raise a ConfigError that names the override for any error of composing a configuration or building a plan."""
    return errors_as(lambda error: explain(error, overrides))


def explain(error: Exception, overrides: Sequence[str]) -> ConfigError:
    """Return a ConfigError with the error as its cause: about an unknown option or key, else in Hydra's words."""
    refusal = None
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        refusal = _missing_option(*error.missing_cfg_file.rpartition("/")[::2], error.options or [])
    elif isinstance(error, ValueError) and "must be a string or a list" in str(error):
        groups = [(word.key_or_group, word.value()) for word in parse(overrides) if word.key_or_group in OPTIONS]
        wrong = ((group, value) for group, value in groups if not isinstance(value, str | list))
        refusal = next((_missing_option(group, as_typed(value), []) for group, value in wrong), None)
    elif isinstance(error, OverrideParseException):
        hint = synonym(str(error.override)) or "KEY=VALUE, or \"KEY='VALUE'\" if it is unusual"
        refusal = ConfigError(f"{shorten(str(error.override))}: this cannot be parsed; write {hint}.")
    elif isinstance(error.__cause__, ConfigAttributeError | ConfigKeyError):
        missing = (word for word in parse(overrides) if f"'{word.key_or_group}'" in str(error))
        refusal = next((_missing_key(word, overrides) for word in missing), None)
    elif missing_key := re.search(r"Interpolation key '(.+)' not found\s+full_key: (\S+)", str(error)):
        name, key = missing_key.groups()
        typed = next((word for word in overrides if f"${{{name}}}" in word), key)
        hint = f"{typed.partition('=')[0].lstrip('+')}=VALUE"
        refusal = ConfigError(f"{typed}: it refers to {name}, and there is no such key; write {hint}.")
    elif isinstance(error, MissingMandatoryValue):
        group = str(error.full_key).partition(".")[0]
        refusal = ConfigError(f"{error.full_key}: the chosen {group} needs it; write {error.full_key}=VALUE.")
    elif plugin := re.search(r"Unknown plugin class : 'hydra_plugins\.(\w+)", str(error)):
        package = plugin[1].replace("_", "-")
        refusal = ConfigError(f"{package}: this plugin of Hydra is not installed; write pip install {package} first.")
    elif chosen := re.match(r"Could not override '(\w+)'\.\s+No match in the defaults list", str(error)):
        typed = next((word for word in overrides if key_of(word) == chosen[1]), chosen[1])
        reason = "the configuration of --config-name has no groups to choose from"
        refusal = ConfigError(f"{typed}: {reason}; write KEY=VALUE of its keys, or {typed} without --config-name.")
    elif "Ambiguous value" in str(error):
        refusal = next((_several(word) for word in parse(overrides) if word.is_sweep_override()), None)
    elif "INTERVAL_SWEEP" in str(error):
        named = next((word.input_line for word in parse(overrides) if word.is_interval_sweep()), "interval")
        search = "-m hydra/sweeper=search optimized_metric=val/acc beside it, or several values"
        refusal = ConfigError(f"{named}: only a search takes an interval; write {search}.")
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


def _several(override: Override) -> ConfigError:
    key, _, typed = str(override.input_line).partition("=")
    as_list = f"{key}=[{typed}], or " if key in (*SEVERAL, "tags") else ""
    hint = f"{as_list}-m {key}={typed} to run a job for each"
    return config_error(key, typed, "several values are a list or a sweep", hint)


def _missing_key(override: Override, overrides: Sequence[str]) -> ConfigError:
    key, typed = override.key_or_group, str(override.input_line).partition("=")[2]
    value, composed = None if override.is_sweep_override() else override.value(), _composed_keys(overrides)
    group = key.removesuffix(f".{KEY}")
    if group in OPTIONS and (isinstance(value, dict) or group != key):
        reason = f"the chosen {group} has no {KEY}"
        if group == key:
            reason = f"a mapping is merged into the chosen {group}, and does not replace it"
        return config_error(key, typed, reason, f"it into a file conf/{group}/NAME.yaml, and {group}=NAME")
    keys = [name for name, default in composed.items() if _fits(name, value, default)]
    parent, _, name = key.rpartition(".")
    target = str(composed.get(f"{parent}.{KEY}", "lockstep."))
    hint = synonym(f"{key}={typed}")
    is_known = target.startswith("lockstep.") or (is_below(key, PARTS) and bool(hint or options_with(key)))
    if not is_known and not nearest(name, _children(parent, keys)):
        return config_error(key, typed, f"the YAML of {target} has no such key", f"+{key}={typed} to add this argument")
    if hint is not None:
        together = _synonyms(f"{key}={typed}", overrides, composed)
        return together or config_error(key, typed, "there is no such key", hint + _beside(hint, composed))
    refusal, options = unknown_key(key, typed, keys), options_with(key)
    group, *names = key.split(".")
    if options and ("did you mean" not in str(refusal) or names[0] in options):
        return config_error(key, typed, f"the chosen {group} has no such key", f"{group}={' or '.join(options)}")
    return refusal


def _children(parent: str, keys: Collection[str]) -> list[str]:
    return [key.rpartition(".")[2] for key in keys if key.rpartition(".")[0] == parent]


def _beside(hint: str, keys: Collection[str]) -> str:
    """Return " beside GROUP=OPTIONS" for a hint that the chosen option of its group has no key for."""
    key = hint.partition("=")[0]
    options = [] if key in keys else options_with(key)
    return f" beside {key.partition('.')[0]}={' or '.join(options)}" if options else ""


def _synonyms(typed: str, overrides: Sequence[str], keys: Mapping[str, Any]) -> ConfigError | None:
    """Return the error of several words of another tool, with all that is to be written in their place."""
    hints = {word: synonym(word) or "" for word in (word.lstrip("+") for word in overrides)}
    hints = {word: hint + _beside(hint, keys) for word, hint in hints.items()}
    plain = {word: hint.split(" ") for word, hint in hints.items() if all("=" in part for part in hint.split(" "))}
    if typed not in plain:
        return None
    words = [word for word in plain if word == typed or isinstance(keys.get(word.partition("=")[0], {}), dict)]
    parts = dict(part.partition("=")[::2] for word in words for part in plain[word])
    hint = " ".join(f"{key}={value}" for key, value in parts.items())
    return ConfigError(f"{shorten(' '.join(words))}: there are no such keys; write {hint}.") if len(words) > 1 else None


def _composed_keys(overrides: Sequence[str]) -> dict[str, Any]:
    """Return all keys of the chosen options, or of the default ones, with their values."""
    chosen = [word for word in overrides if word.partition("=")[0] in OPTIONS or word.startswith("hydra.")]
    if folder := get_args_parser().parse_known_args(overrides)[0].config_dir:
        chosen += [f"hydra.searchpath=[file://{Path(folder).absolute()}]"]
    try:
        config, _ = compose_job(chosen)
    except Exception:  # those of a sweep, for example
        config, _ = compose_job([])
    return dict(_flat("", OmegaConf.to_container(config)))


def _flat(prefix: str, values: Any) -> Iterator[tuple[str, Any]]:
    for name, value in values.items() if isinstance(values, dict) else ():
        yield f"{prefix}{name}", value
        yield from _flat(f"{prefix}{name}.", value)


def _fits(key: str, value: Any, default: Any) -> bool:
    """Whether a key takes a value, judging by its default value; null fits any."""
    if key in OPTIONS:
        return value in OPTIONS[key]
    kinds = (int, float, str) if is_number(value) else (type(value),)
    return value is None or default is None or type(default) in kinds
