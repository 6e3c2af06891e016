"""The options in which two runs differ, by the keys and in the form of the command line."""

from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.compare.comparison_rules import CONFIGURATION, EXPECTED, rule_of
from lockstep.config_error import as_typed
from lockstep.run_files import CONFIG
from lockstep.schemas.keys import flatten

NONE = "–"  # shown for the option that a run does not have


def differing_options(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the options that differ between two configurations and decide what is computed, or in which world.

    If the choice of a group differs, options that only one of the choices has follow from it, and are left out.
    """
    left, right = ({key: as_typed(value) for key, value in _typed(config)} for config in (a, b))
    options = {}
    groups = list(dict.fromkeys(key.partition(".")[0] for key in {**left, **right}))
    for key in sorted({**left, **right}, key=lambda key: (groups.index(key.partition(".")[0]), "." in key)):
        group, shown = key.partition(".")[0], (left.get(key, NONE), right.get(key, NONE))
        follows = NONE in shown and left.get(group) != right.get(group)
        if shown[0] != shown[1] and not follows and rule_of(f"{CONFIG}:{key}").quantity in (CONFIGURATION, EXPECTED):
            options[key] = shown
    return options


def _typed(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield all options by the keys of the command line, those of each callback by its name."""
    groups: dict[str, Any] = {}
    for group, value in config.items():
        several = isinstance(value, list) and any(isinstance(item, Mapping) for item in value)
        groups |= {item.get("key", f"{group}.{item['name']}"): item for item in value} if several else {group: value}
    for key, value in flatten(groups).items():
        yield from _leaves(key, value)


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(f"{key}.{name}", inner)
    else:
        yield key, value
