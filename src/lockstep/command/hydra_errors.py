"""One sentence for any error of composing a configuration or building a plan: the override, and what to write.

The error stays the cause of the ConfigError: HYDRA_FULL_ERROR=1 prints its traceback.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from lockstep.command.build import typed_values
from lockstep.command.compose import OPTIONS, compose_job, nested, options_with, parse
from lockstep.plan.schemas.coerce import unknown_key
from lockstep.plan.schemas.former import synonym
from lockstep.plan.schemas.groups import PARTS, SEVERAL, is_below, key_of
from lockstep.plan.schemas.target import KEY

SENTENCES = {
    r"Missing mandatory value: .+\s+full_key: (\S+)": r"\1: the chosen option needs it; write \1=VALUE",
    r"Cannot overwrite study direction from \[<StudyDirection\.(\w+)": (
        r"hydra.sweeper.study_name: this search has the direction \1; write hydra.sweeper.study_name=ANOTHER"
    ),
    r"Unknown plugin class : 'hydra_plugins\.(\w+)": r"\1: Hydra needs this package; write pip install \1 first",
    r"Could not override 'hydra'": "hydra: it has no options; write nothing in its place, or hydra.KEY=VALUE",
    r"Could not override '(\w+)'\.\s+No match": r"\1: there is no such group with --config-name; write KEY=VALUE",
    r"Cannot find primary config '(.+?)'": (
        r"--config-name=\1: there is no such file; write --config-dir=FOLDER beside it, where \1.yaml lies, or "
        r"train=false ckpt_path=best to test a run"
    ),
    r"Primary config (?:directory|module) '?(.+?)'? not found": (
        r"\1: there is no such folder of configurations; write --config-dir=FOLDER in place of --config-path"
    ),
}
"""What Hydra says over several lines, and one sentence in its place."""


@contextmanager
def planning(overrides: Sequence[str]) -> Iterator[None]:
    """Raise a ConfigError that names the override for any error of composing a configuration or building a plan."""
    try:
        with errors_as(lambda error: explain(error, overrides)):
            yield
    except ConfigError as error:
        refusal = _refused_hint(error, overrides)
        if refusal is None:
            raise
        raise refusal from error.__cause__


def _refused_hint(error: ConfigError, overrides: Sequence[str]) -> ConfigError | None:
    """Return the error with the reason why its hint, which has the typed value, would be refused; None if it would not.

    All is tried that needs neither Lightning nor code of the user's.
    """
    if {"-m", "--multirun"} & {*overrides}:
        return None
    typed = [word for word in overrides if key_of(word) == error.key and "=" in word]
    hints = re.split(", | or | to ", error.hint)[0].split(" ")
    if not typed or typed[-1].partition("=")[2] not in error.hint or not all("=" in hint for hint in hints):
        return None
    words = [*hints, *(word for word in overrides if word not in (*typed, *hints))]
    if {*words} >= {*overrides}:
        return None
    try:
        with planning(words):
            values = typed_values(*compose_job(_composable(words)))
            if is_below(key_of(hints[0]), ("model", *PARTS)) and re.search("[^-+.0-9e]", hints[0].partition("=")[2]):
                from lockstep.plan.targets.early_checks import check_early  # with torch, which few hints need

                check_early(values["model"])
    except ConfigError as refused:
        named = str(refused).partition(": ")[0]
        if named.startswith(tuple(key_of(hint).partition(".")[0] for hint in hints)):
            return ConfigError(f"{str(error).rpartition('; write ')[0]}; {refused}")
    return None


def explain(error: Exception, overrides: Sequence[str]) -> ConfigError:
    """Return a ConfigError with the error as its cause: about an unknown option or key, else in Hydra's words."""
    refusal = _of_group(error, overrides) or _of_key(error, overrides) or _in_words(error, overrides)
    refusal.__cause__ = error
    return refusal


def _of_group(error: Exception, overrides: Sequence[str]) -> ConfigError | None:
    """Return the error of an option that a group does not have, `logger=null` among them."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, option = error.missing_cfg_file.rpartition("/")
    elif word := next((word for word in overrides if word.startswith("=")), None):
        return ConfigError(f"{shorten(word)}: it has no key; write KEY=VALUE.")
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
    chosen = [word for word in _composable(overrides) if key_of(word) in OPTIONS or word.startswith("hydra.")]
    try:
        config, _ = compose_job(chosen)
    except Exception:  # those of a sweep, for example
        config, _ = compose_job([])
    return dict(nested(OmegaConf.to_container(config, resolve=False)))


def _composable(overrides: Sequence[str]) -> list[str]:
    """Return overrides without flags, and with the folder of `--config-dir`."""
    parsed, _ = get_args_parser().parse_known_intermixed_args(overrides)
    search = [f"hydra.searchpath=[file://{Path(parsed.config_dir).absolute()}]"] if parsed.config_dir else []
    return [*parsed.overrides, *search]


def _in_words(error: Exception, overrides: Sequence[str]) -> ConfigError:
    """Return the error of what cannot be parsed or composed, in Hydra's words unless these fill several lines."""
    for pattern, sentence in SENTENCES.items():
        if match := re.search(pattern, str(error)):
            return ConfigError(f"{match.expand(sentence)}.")
    if match := re.search("Ambiguous value for argument '(.+?)=(.+)'", str(error)):
        key, values = match.groups()
        takes_list = key in SEVERAL or isinstance(_composed_keys(overrides).get(key), list)
        hint = f"-m {key}={values} to run a job for each" + (f", or {key}=[{values}] for a list" if takes_list else "")
        return ConfigError(f"{key}={values}: several values are a list or a sweep; write {hint}.")
    if isinstance(error, OverrideParseException):
        hint = synonym(str(error.override)) or ""
        if not hint or ("=" in hint and not parse([hint])):
            hint = "KEY=VALUE, or \"KEY='VALUE'\" if it is unusual"
        return ConfigError(f"{shorten(str(error.override))}: this cannot be parsed; write {hint}.")
    named = shorten(" ".join(word for word in overrides if not word.startswith("-"))) or "the configuration"
    reason = shorten(" ".join(str(error).split()))
    if not isinstance(error, HydraException | OmegaConfBaseException):
        hint = f"KEY=VALUE as {typed_command()} --help lists them"
        reason = f"this cannot be composed ({type(error).__name__}: {reason}); write {hint}."
    return ConfigError(f"{named}: {reason}")
