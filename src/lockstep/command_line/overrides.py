"""Overrides of the command line: the checks that Hydra leaves out, and the keys that exist."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from lockstep.build import named_options
from lockstep.conf import CONF
from lockstep.config_error import config_error
from lockstep.schemas.groups import GROUPS, SEVERAL

OPTIONS = {group: sorted(path.stem for path in (CONF / group).glob("*.yaml")) for group in (*GROUPS, "experiment")}
"""The options of each group, by their files in conf/."""


def parse(words: Iterable[str]) -> list[Override]:
    """Parse overrides as Hydra does, without those that it cannot parse (flags, syntax errors)."""
    overrides = []
    for word in words:
        with suppress(Exception):  # Hydra raises it again
            overrides.append(OverridesParser.create().parse_override(word))
    return overrides


def check_lists(words: Iterable[str], config: Mapping[str, Any]) -> None:
    """Reject several options for a group of one, of which Hydra takes the last, and options that Hydra has merged."""
    for override in parse(words):
        group, value = override.key_or_group, override.value()
        typed = (override.input_line or "").partition("=")[2]
        if not isinstance(value, list) or group not in GROUPS:
            continue
        if group not in SEVERAL and len(value) > 1:
            raise config_error(group, typed, "this group takes one option", f"{group}={value[0]}")
        if group in SEVERAL and len(named_options(group, config[group])) < len({*map(str, value)}):
            raise config_error(
                group,
                typed,
                "two of these files have a _target_, and were merged into one",
                f"'# @package {group}.NAME' as the first line of each",
            )


def swept_keys(command: Iterable[str], job: Iterable[str]) -> tuple[str, ...]:
    """Return the keys of a job's overrides that the sweep varies: all but those with one value in the command."""
    fixed = {override.key_or_group for override in parse(command) if not override.is_sweep_override()}
    return tuple(key for word in job if (key := word.lstrip("+~").partition("=")[0]) not in fixed)


def known_keys() -> list[str]:
    """Return every key that may be typed: groups, keys of their options, and the other keys of train.yaml."""
    values = yaml.safe_load((CONF / "train.yaml").read_text())
    keys = [*(key for key in values if key not in ("defaults", "hydra")), *OPTIONS]
    keys += [f"{key}.{name}" for key, value in values.items() if isinstance(value, dict) for name in value]
    for group in GROUPS:
        for option in OPTIONS[group]:
            prefix = f"{group}.{option}" if group in SEVERAL else group
            names = yaml.safe_load((CONF / group / f"{option}.yaml").read_text())
            keys += [f"{prefix}.{name}" for name in names if name != "name"]
    return [*dict.fromkeys(key for key in keys if not key.startswith("hydra."))]
