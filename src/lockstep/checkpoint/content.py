"""What lies in a checkpoint beside weights, optimizer, schedule and scaler: where training stood, on every rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

OWN = "lockstep"
PREFIX = "net."
"""In front of each name: in Lightning's engine the net is an attribute of the LightningModule."""


@dataclass
class Position:
    """Epochs done, global batches done of the next one, optimizer steps done in all."""

    epochs: int = 0
    batch: int = 0
    steps: int = 0


@dataclass(frozen=True)
class RankState:
    """What one rank alone knows: its random numbers to come, and its sums that have not met the other ranks' yet."""

    random: Mapping[str, Any] = field(default_factory=dict)
    sums: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Content:
    """What a checkpoint holds under `lockstep`.

    `record`: the lines of record.jsonl that were written by then; `best`: what the best epoch is best by.
    """

    identity: Mapping[str, Any]
    digest: str
    position: Position
    record: int
    results: Mapping[str, float]
    best: float | None
    ranks: Sequence[RankState]

    def as_saved(self) -> dict[str, Any]:
        """Tensors and plain values only, since nothing else is loaded."""
        position, ranks = vars(self.position), [vars(rank) for rank in self.ranks]
        return {**vars(self), "position": {**position}, "ranks": ranks}

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> "Content":
        position, ranks = Position(**saved["position"]), [RankState(**rank) for rank in saved["ranks"]]
        return cls(**{**saved, "position": position, "ranks": ranks})

    def of_rank(self, rank: int, world_size: int) -> RankState:
        """This rank's part. In another world nothing depends on random numbers, and rank 0 takes all sums."""
        if len(self.ranks) == world_size:
            return self.ranks[rank]
        names = self.ranks[0].sums
        whole = {name: torch.stack([state.sums[name] for state in self.ranks]).sum(0) for name in names}
        return RankState(sums=whole if rank == 0 else {name: torch.zeros_like(sums) for name, sums in whole.items()})


def state_of(net: nn.Module) -> dict[str, Tensor]:
    """The net's parameters and buffers by the names that checkpoints give them."""
    return {PREFIX + name: tensor for name, tensor in net.state_dict().items()}


def own_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The other way: a checkpoint's parameters and buffers by the net's own names."""
    return {name.removeprefix(PREFIX): tensor for name, tensor in state.items()}


def net_state(path: Path) -> dict[str, Tensor]:
    """The parameters and buffers in a checkpoint file, by the net's own names."""
    return own_names(torch.load(path, map_location="cpu", weights_only=True)["state_dict"])
