"""Samples that are mappings, as of a `datasets` table: which of their keys a plain net takes for input and target."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from lockstep.config_error import config_error, require


@dataclass(frozen=True)
class SampleKeys:
    """`targets`: None where a sample is its input alone."""

    inputs: str
    targets: str | None

    @property
    def named(self) -> dict[str, str]:
        """By their keys on the command line."""
        given = {"data.inputs": self.inputs, "data.targets": self.targets}
        return {name: key for name, key in given.items() if key is not None}

    def of(self, own: Any) -> tuple[Any, ...]:
        """The input and the target of a sample, or of a batch.

        Raises:
            ConfigError: it is no mapping, or has no such key.
        """
        reason = f"a sample is a {type(own).__name__}, and has no keys"
        require(isinstance(own, Mapping), "data.inputs", self.inputs, reason, "nothing in its place")
        for name, key in self.named.items():
            if key not in own:
                raise config_error(name, key, "a sample has no such key", f"one of {', '.join(map(str, own))}")
        return tuple(own[key] for key in self.named.values())

    def of_batch(self, batch: Any) -> list[Any]:
        """The same; numbers of lists, which torch's collate function has put together place by place, in one tensor."""
        found = self.of(batch)
        return [torch.stack(own, 1) if _is_by_place(own) else own for own in found]


def keys_of(choice: Any) -> SampleKeys | None:
    """Return which keys of a sample are asked for, or None if samples are no mappings."""
    inputs = getattr(choice, "input_key", None)
    return None if inputs is None else SampleKeys(inputs, choice.target_key)


@dataclass(frozen=True)
class FromMappings:
    """A collate function around another, of which the keys' values alone are left."""

    keys: SampleKeys
    collate: Callable[..., Any]

    def __call__(self, samples: Sequence[Any]) -> Any:
        if self.collate is not default_collate:
            return self.keys.of_batch(self.collate(samples))
        return default_collate([tuple(map(_as_tensor, self.keys.of(own))) for own in samples])


def _as_tensor(own: Any) -> Any:
    """A table without a format has lists in its columns."""
    return torch.tensor(own) if isinstance(own, list) else own


def _is_by_place(own: Any) -> bool:
    return isinstance(own, list) and len(own) > 0 and all(isinstance(part, Tensor) for part in own)
