"""Overrides of the command line: the checks that Hydra leaves out, and the keys that exist."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from lockstep.build import KEYS, named_options
from lockstep.conf import CONF
from lockstep.config_error import config_error
from lockstep.schemas.groups import GROUPS, PARTS, SEVERAL, TARGETS
from lockstep.schemas.keys import key_of
from lockstep.schemas.target import KEY

GROUP_NAMES = (*GROUPS, *TARGETS, "experiment", "debug")
OPTIONS = {group: sorted(path.stem for path in (CONF / group).glob("*.yaml")) for group in GROUP_NAMES}
"""The options of each group, by their files in conf/."""


def without_plus(word: str) -> str:
    """Return an override without `+`, as Lightning's arguments are often typed; arguments of user code get `++`."""
    rest = word.lstrip("+")
    key = rest.partition("=")[0]
    group = key.partition(".")[0]
    if rest in (word, key) or group not in (*KEYS, *OPTIONS):
        return word
    return f"++{rest}" if group in TARGETS and group != key else rest


def parse(words: Iterable[str]) -> list[Override]:
    """Parse overrides as Hydra does, without those that it cannot parse (flags, syntax errors)."""
    overrides = []
    for word in words:
        with suppress(Exception):  # Hydra raises it again
            overrides.append(OverridesParser.create().parse_override(word))
    return overrides


def check_words(words: Iterable[str], config: DictConfig) -> None:
    """Reject what Hydra accepts: several options for a group of one, merged options, keys without an effect."""
    model = str(OmegaConf.to_container(config.model, resolve=False)) if config.get("model") else ""
    for override in parse(words):
        group, value = override.key_or_group, override.value()
        typed = (override.input_line or "").partition("=")[2]
        part = group.partition(".")[0]
        if part in PARTS and model and f"${{{part}}}" not in model:
            hint = f"an argument of the module, such as model.lr, or {part}: ${{{part}}} in its YAML"
            raise config_error(group, typed, f"the chosen model configures its {part} itself", hint)
        if group == "data.batch_size" and str(config.data.get(KEY)).startswith("lockstep."):
            raise config_error(group, typed, "the size of a batch is a key of the run", f"batch_size={typed}")
        if not isinstance(value, list) or group not in (*GROUPS, *TARGETS):
            continue
        if group not in SEVERAL and len(value) > 1:
            raise config_error(group, typed, "this group takes one option", f"{group}={value[0]}")
        if group in SEVERAL and len(named_options(group, config.get(group))) < len({*map(str, value)} - {"none"}):
            reason = "two of these files have a _target_, and were merged into one"
            raise config_error(group, typed, reason, f"'# @package {group}.NAME' as the first line of each")


def swept_keys(command: Iterable[str], job: Iterable[str]) -> tuple[str, ...]:
    """Return the keys of a job's overrides that the sweep varies: all but those with one value in the command."""
    varies = {override.key_or_group: override.is_sweep_override() for override in parse(command)}  # the last counts
    return tuple(dict.fromkeys(key for word in job if varies.get(key := key_of(word), True)))


def options_with(key: str) -> list[str]:
    """Return the options of a key's group that have this key."""
    group, *names = key.split(".")
    files = {option: yaml.safe_load((CONF / group / f"{option}.yaml").read_text()) for option in OPTIONS.get(group, ())}
    return [option for option, keys in files.items() if _has(keys, names[names[:1] == [option] :])]


def _has(keys: Any, names: Sequence[str]) -> bool:
    """Whether nested keys have a key, whose names may begin with those of another."""
    if not names or not isinstance(keys, dict):
        return False
    return names[0] in keys and (len(names) == 1 or _has(keys[names[0]], names[1:]))
