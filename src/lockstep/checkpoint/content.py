"""What a checkpoint holds beside weights, optimizer, schedule and scaler: where training stood, on every rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from lockstep.record.file import RecordOffset

SECTION = "lockstep"
"""The key of `Content` in a checkpoint."""
SCALER = "MixedPrecision"
"""Lightning's key for the state of the gradient scaler."""
PREFIX = "net."
"""The prefix of weights: in Lightning's engine a plain net is an attribute of the LightningModule."""


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
    """The state of one rank: its generators, and what is not reduced over the ranks yet.

    `sums`: of metrics and of the record; `gradients`: of an unfinished optimizer step, by parameter; `buffers`: of
    ranks above 0, whose BatchNorm may have statistics of their own; `module`: what a LightningModule has logged and
    measured in the current epoch.
    """

    random: Mapping[str, Any] = field(default_factory=dict)
    sums: Mapping[str, Tensor] = field(default_factory=dict)
    gradients: Mapping[str, Tensor] = field(default_factory=dict)
    buffers: Mapping[str, Tensor] = field(default_factory=dict)
    module: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Content:
    """What a checkpoint holds under `lockstep`.

    `record`: the lines that it counts; `best`: the metric that is monitored and its best value,
    negative if more is better; `prefix`: of the names of weights; `ended`: whether a callback has ended training early.
    """

    identity: Mapping[str, Any]
    position: Progress
    record: RecordOffset
    results: Mapping[str, float]
    best: tuple[str, float] | None
    best_yet: bool
    ranks: Sequence[RankState]
    prefix: str = PREFIX
    ended: bool = False

    def as_saved(self) -> dict[str, Any]:
        """Return tensors and plain values only, since nothing else is loaded."""
        plain = {"position": {**vars(self.position)}, "record": vars(self.record)}
        return {**vars(self), **plain, "ranks": [vars(rank) for rank in self.ranks]}

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> "Content":
        position, record = Progress(**saved["position"]), RecordOffset(**saved["record"])
        ranks = [RankState(**rank) for rank in saved["ranks"]]
        return cls(**{**saved, "position": position, "record": record, "ranks": ranks})

    def of_rank(self, rank: int, world_size: int, sharded: bool = False) -> RankState:
        """Return the state that a rank resumes with.

        In another world nothing depends on random numbers, and rank 0 takes all sums. Gradients are scaled so that
        their mean over ranks is that of the global batch: in another world, and if they are `sharded` and not averaged
        again, each rank takes that mean.
        """
        if len(self.ranks) == world_size:
            state = self.ranks[rank]
            return replace(state, gradients=self._mean_gradients()) if sharded else state
        totals = {name: self._stacked("sums", name).sum(0) for name in self.ranks[0].sums}
        sums = totals if rank == 0 else {name: torch.zeros_like(total) for name, total in totals.items()}
        return RankState({}, sums, self._mean_gradients())

    def _mean_gradients(self) -> Mapping[str, Tensor]:
        """Return the mean gradient over ranks by name; equal ones, as shards have, are not rounded."""
        names = dict.fromkeys(name for state in self.ranks for name in state.gradients)
        stacks = {name: self._stacked("gradients", name) for name in names}
        return {name: stack[0] if (stack == stack[0]).all() else stack.mean(0) for name, stack in stacks.items()}

    def _stacked(self, kind: str, name: str) -> Tensor:
        """Return a tensor of all ranks, (ranks, …); zeros for a rank without one, whose share of a batch was empty."""
        tensors = [getattr(state, kind).get(name) for state in self.ranks]
        like = next(tensor for tensor in tensors if tensor is not None)
        return torch.stack([torch.zeros_like(like) if tensor is None else tensor for tensor in tensors])


def net_weights(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return a checkpoint's parameters and buffers by their names in the net."""
    prefix = checkpoint.get(SECTION, {}).get("prefix", PREFIX)
    return {name.removeprefix(prefix): tensor for name, tensor in checkpoint["state_dict"].items()}
