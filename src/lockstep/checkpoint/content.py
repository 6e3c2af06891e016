"""What a checkpoint holds beside weights, optimizer, schedule and scaler: where training stood, on every rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from lockstep.objectives.objective import SAMPLES
from lockstep.record.file import RecordOffset

SECTION = "lockstep"
SCALER = "MixedPrecision"
"""Lightning's name for the state of the gradient scaler."""

PREFIX = "net."
"""In front of each name: in Lightning's engine the net is an attribute of the LightningModule."""


@dataclass
class Progress:
    """A position in training: complete epochs, global batches of the next epoch, optimizer steps in all."""

    epochs: int = 0
    batch: int = 0
    steps: int = 0

    @property
    def begun(self) -> int:
        """Return the number of epochs that have begun."""
        return self.epochs + bool(self.batch)


@dataclass(frozen=True)
class RankState:
    """What one rank alone knows: its random numbers to come, and what has not met the other ranks' yet.

    `sums`: of metrics and of the record; `gradients`: of an optimizer step that is under way, by parameter;
    `buffers`: of ranks above 0, whose BatchNorm may have statistics of their own; `module`: what a LightningModule has
    logged and measured in the epoch under way.
    """

    random: Mapping[str, Any] = field(default_factory=dict)
    sums: Mapping[str, Tensor] = field(default_factory=dict)
    gradients: Mapping[str, Tensor] = field(default_factory=dict)
    buffers: Mapping[str, Tensor] = field(default_factory=dict)
    module: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Content:
    """What a checkpoint holds under `lockstep`.

    `record`: the lines of record.jsonl that were written by then; `record_size`, `record_sha256`: bytes and digest of
    those behind the first; `best`: how good the best epoch is, by which metric; `sum_names`: what each of the ranks'
    sums is of, as `Objective.sums`; `prefix`: in front of the names of weights; an older version did not say.
    `ended`: a callback has ended training early.
    """

    identity: Mapping[str, Any]
    position: Progress
    record: int
    results: Mapping[str, float]
    best: tuple[str, float] | None
    best_yet: bool
    ranks: Sequence[RankState]
    record_size: int
    record_sha256: str
    sum_names: Sequence[str] = field(default_factory=list)
    prefix: str = PREFIX
    ended: bool = False

    def as_saved(self) -> dict[str, Any]:
        """Tensors and plain values only, since nothing else is loaded."""
        position, ranks = vars(self.position), [vars(rank) for rank in self.ranks]
        return {**vars(self), "position": {**position}, "ranks": ranks}

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> "Content":
        position, ranks = Progress(**saved["position"]), [RankState(**rank) for rank in saved["ranks"]]
        return cls(**{**saved, "position": position, "ranks": ranks})

    def of_rank(self, rank: int, world_size: int, sharded: bool = False) -> RankState:
        """This rank's part. In another world nothing depends on random numbers, and rank 0 takes all sums.

        A rank's gradient is so scaled that the mean over ranks is the whole: in another world each takes that mean, and
        so it does where gradients are `sharded`, since shards are not averaged again.
        """
        if len(self.ranks) == world_size:
            own = self.ranks[rank]
            return replace(own, gradients=self._gradients) if sharded else own
        whole = {name: self._over_ranks("sums", name).sum(0) for name in self.ranks[0].sums}
        sums = whole if rank == 0 else {name: torch.zeros_like(sums) for name, sums in whole.items()}
        return RankState({}, sums, self._gradients)

    @property
    def mark(self) -> RecordOffset:
        """How far the record had come."""
        return RecordOffset(self.record, self.record_size, self.record_sha256)

    @property
    def samples(self) -> int:
        """That the epoch under way has trained on."""
        return int(self._over_ranks("sums", "epoch").sum(0)[SAMPLES])

    @property
    def _gradients(self) -> Mapping[str, Tensor]:
        """The means over ranks; what is the same on each, as shards leave it, is not rounded."""
        names = dict.fromkeys(name for state in self.ranks for name in state.gradients)
        parts = {name: self._over_ranks("gradients", name) for name in names}
        return {name: own[0] if (own == own[0]).all() else own.mean(0) for name, own in parts.items()}

    def _over_ranks(self, kind: str, name: str) -> Tensor:
        """(ranks, …): zeros of a rank that has none, whose share of a small batch was empty."""
        parts = [getattr(state, kind).get(name) for state in self.ranks]
        like = next(part for part in parts if part is not None)
        return torch.stack([torch.zeros_like(like) if part is None else part for part in parts])


def net_weights(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return a checkpoint's parameters and buffers by the net's own names."""
    prefix = checkpoint.get(SECTION, {}).get("prefix", PREFIX)
    return {name.removeprefix(prefix): tensor for name, tensor in checkpoint["state_dict"].items()}
