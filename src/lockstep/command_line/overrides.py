"""Overrides before Hydra reads them: text stays as it was typed, a group takes one option or several, as it is made."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, get_args, get_type_hints

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString, Sweep
from hydra.errors import HydraException

from lockstep.build import NESTED, named_options
from lockstep.config_error import config_error, require
from lockstep.plan import Plan
from lockstep.schemas.groups import GROUPS, SEVERAL

WORD = re.compile(r"([+]{0,2}[\w./]+)=([^\s'\"\[\]{}()$,]+(?:,[^\s'\"\[\]{}()$,]+)*)")
"""An override of one plain value, or of several with commas between."""


@cache
def text_keys() -> set[str]:
    """The keys that take text of any kind: `name`, `ckpt_path`, `data.root`, …"""
    parts = [("", Plan), *((f"{key}.", kind) for key, kind in NESTED.items())]
    for group, kinds in GROUPS.items():
        parts += [(f"{group}.{name}." if group in SEVERAL else f"{group}.", kind) for name, kind in kinds.items()]
    hinted = [(prefix, get_type_hints(kind), fields(kind)) for prefix, kind in parts]
    return {prefix + field.name for prefix, hints, own in hinted for field in own if _is_text(hints[field.name])}


def _is_text(hint: Any) -> bool:
    return hint is str or set(get_args(hint)) == {str, type(None)}


def verbatim(overrides: Sequence[str], sweep: bool = False) -> list[str]:
    """The overrides with quotes around what is text and looks like a number: Hydra reads 1_000 as 1000, 1e3 as 1000.0.

    Args:
        sweep: several values with commas between are one for each job.
    """
    words = []
    for override in overrides:
        match = WORD.fullmatch(override)
        if match is not None and match[1].lstrip("+") in text_keys() and (sweep or "," not in match[2]):
            override = f"{match[1]}=" + ",".join(map(_quoted, match[2].split(",")))
        words.append(override)
    return words


def _quoted(value: str) -> str:
    try:
        float(value)  # underscores between digits, too
    except ValueError:
        return value
    return f"'{value}'"


def require_one_option(overrides: Iterable[str], options: dict[str, list[str]]) -> None:
    """Refuse a list where a group takes one option: Hydra would keep the last one, or stumble over what is no name.

    A group that takes several refuses a list of none.

    Args:
        options: of each group, their names.
    """
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        group = key.partition("@")[0]
        if group not in options or "[" not in value:
            continue
        for listed in _lists(override):
            names = [one for one in listed if isinstance(one, str)]
            one = group in GROUPS and (group not in SEVERAL or not listed)
            if len(names) < len(listed) or (one and len(listed) != 1):
                known = [name for name in names if name in options[group]] or options[group]
                reason = "a group takes the name of one of its options"
                raise config_error(
                    group, value, reason, f"{group}={known[0]}" if names else f"one of {', '.join(known)}"
                )


def require_each_option(overrides: Iterable[str], config: Mapping[str, Any]) -> None:
    """Refuse a list of options of which two have become one: both have a `_target_`, one of them at the file's top."""
    for override in overrides:
        group, _, value = override.lstrip("+").partition("=")
        if group in SEVERAL and group in config:
            names = {name for listed in _lists(override) for name in listed}
            reason = "two of these files have a _target_, and became one"
            hint = f"'# @package {group}.NAME' as the first line of each"
            require(len(named_options(group, config[group])) >= len(names), group, value, reason, hint)


def swept_keys(typed: Iterable[str], job: Iterable[str]) -> tuple[str, ...]:
    """Of one job's overrides, the keys that a sweep varies: typed with several values, or by a sweeper alone."""
    fixed = set()
    for word in typed:
        try:
            override = OverridesParser.create().parse_override(word)
        except HydraException:
            continue  # a flag, or its value
        if not override.is_sweep_override():
            fixed.add(override.key_or_group)
    return tuple(key for word in job if (key := word.lstrip("+~").partition("=")[0]) not in fixed)


def _lists(override: str) -> list[list[Any]]:
    """The lists among an override's values: the value itself, or those of a sweep."""
    try:
        value = OverridesParser.create().parse_override(override).value()
    except HydraException:
        return []  # it cannot be read, as Hydra will say
    values = getattr(value, "list", []) if isinstance(value, Sweep) else [value]
    return [
        [one.text if isinstance(one, QuotedString) else one for one in listed]
        for listed in values
        if isinstance(listed, list)
    ]
