"""Samples that are mappings, like rows of a `datasets` table: which keys a plain net takes for input and target."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from lockstep.config_error import config_error, require


@dataclass(frozen=True)
class SampleKeys:
    """`targets` is None if a sample is its own target."""

    inputs: str
    targets: str | None

    def of(self, sample: Any) -> tuple[Any, ...]:
        """Return the input and the target of a sample, or of a batch.

        Raises:
            ConfigError: it is no mapping, or has no such key.
        """
        reason = f"a sample is a {type(sample).__name__}, and has no keys"
        require(isinstance(sample, Mapping), "data.inputs", self.inputs, reason, "nothing in its place")
        keys = {"data.inputs": self.inputs} | ({} if self.targets is None else {"data.targets": self.targets})
        for name, key in keys.items():
            if key not in sample:
                raise config_error(name, key, "a sample has no such key", f"one of {', '.join(map(str, sample))}")
        return tuple(sample[key] for key in keys.values())

    def of_batch(self, batch: Any) -> list[Any]:
        """Return the inputs and targets of a batch; lists of numbers, which torch collates by place, as one tensor."""
        values = self.of(batch)
        return [torch.stack(value, 1) if _is_by_place(value) else value for value in values]

    def collate(self, function: Callable[..., Any], samples: Sequence[Any]) -> Any:
        """Collate samples by a function; torch's own gets the named values alone, as others may not be collatable."""
        if function is not default_collate:
            return self.of_batch(function(samples))
        pairs = [self.of(sample) for sample in samples]
        return default_collate(
            [tuple(torch.tensor(value) if isinstance(value, list) else value for value in pair) for pair in pairs]
        )


def keys_of(choice: Any) -> SampleKeys | None:
    """Return the keys of samples that the data's configuration names, or None."""
    inputs = getattr(choice, "input_key", None)
    return None if inputs is None else SampleKeys(inputs, choice.target_key)


def _is_by_place(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(isinstance(item, Tensor) for item in value)
