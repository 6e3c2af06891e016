"""Samples that are mappings: the values of the keys that a configuration names."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import default_collate

from lockstep.config_error import require


def values_of(sample: Any, keys: Mapping[str, str]) -> tuple[Any, ...]:
    """Return the named values of a sample, or of a batch: the input alone if it is its own target."""
    names = [*sample] if isinstance(sample, Mapping) else []
    for option, key in keys.items():
        reason = f"a sample has no such key: it is a {type(sample).__name__}"
        require(key in names, option, key, reason, f"one of {', '.join(map(str, names)) or 'none'}")
    return tuple(sample[key] for key in keys.values())


def collate_values(keys: Mapping[str, str], function: Callable[..., Any], samples: Sequence[Any]) -> Any:
    """Collate the named values of samples; torch's own function gets these alone, as others may not be collatable."""
    if function is not default_collate:
        values = values_of(function(samples), keys)  # torch collates lists of numbers by place
        return [torch.stack(value, 1) if isinstance(value, list) else value for value in values]
    pairs = [values_of(sample, keys) for sample in samples]
    return default_collate(
        [tuple(torch.tensor(value) if isinstance(value, list) else value for value in pair) for pair in pairs]
    )
