"""What lies in a checkpoint beside weights, optimizer, schedule and scaler: where training stood, on every rank.

A file may unpack and still hold anything. `require` raises WrongForm of what is no possible value of a plan's run.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.checkpoint.checks import check, is_count, is_dense
from lockstep.config_error import is_number
from lockstep.objectives.objective import SAMPLES
from lockstep.plan import Plan
from lockstep.record.file import Mark
from lockstep.safe_loading import load

OWN = "lockstep"
SCALER = "MixedPrecision"
"""Lightning's name for the state of the gradient scaler."""

PREFIX = "net."
"""In front of each name: in Lightning's engine the net is an attribute of the LightningModule."""


SUMS = ("epoch", "curve", "window")
"""What a rank has summed in the epoch, since the last point of the curve, and of the current step."""


@dataclass
class Progress:
    """Epochs done, global batches done of the next one, optimizer steps done in all."""

    epochs: int = 0
    batch: int = 0
    steps: int = 0

    @property
    def begun(self) -> int:
        """Epochs that have begun."""
        return self.epochs + bool(self.batch)

    def require(self, plan: Plan) -> None:
        check(all(is_count(value) for value in (self.epochs, self.batch, self.steps)), "position")
        steps = plan.steps_before(self.epochs, self.batch)
        skipping = plan.precision == "16-mixed" or plan.by_module  # a scaler, a module that ends an epoch early
        if plan.epoch_batches == 0:  # nobody knows how long an epoch is
            return
        check(self.batch < plan.epoch_batches, "position")
        check(self.steps == steps or (skipping and self.steps <= steps), "position")


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

    def require(self, plan: Plan) -> None:
        sums = self.sums
        check(isinstance(sums, Mapping) and {*SUMS, "ids"} == sums.keys(), "sums")
        check(all(is_dense(sums[name]) and sums[name].shape == (len(plan.objective.sums),) for name in SUMS), "sums")
        check(all(sums[name].dtype == torch.float64 for name in SUMS), "sums")
        ids = sums["ids"]
        check(is_dense(ids) and ids.shape == () and ids.dtype == torch.int64, "sums")
        for name in SUMS:
            count = float(sums[name][SAMPLES])
            check(count.is_integer() and 0 <= count < 2**53, "sums")
        most = plan.data.train_samples or 2**53  # of an iterable nobody may know
        check(sums["epoch"][SAMPLES].item() <= most, "sums")
        self._require_random()
        for what, own in (("gradients", self.gradients), ("buffers", self.buffers)):
            check(isinstance(own, Mapping) and all(map(is_dense, own.values())), what)

    def _require_random(self) -> None:
        """Set each state on a fresh generator, which raises an error if it cannot be set."""
        if self.random == {}:
            return
        own = self.random
        version, internal, gauss = own["python"]
        random.Random().setstate((version, tuple(internal), gauss))
        kind, keys, position, has_gauss, cached = own["numpy"]
        check(is_dense(keys) and keys.dtype == torch.int64 and keys.shape == (624,), "random")
        in_range = bool(((keys >= 0) & (keys < 2**32)).all()) and is_count(position) and position <= 624
        check(kind == "MT19937" and in_range and has_gauss in (0, 1) and is_number(cached), "random")
        np.random.RandomState().set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
        torch.Generator().set_state(own["torch"])
        check(all(is_dense(one) and one.dtype == torch.uint8 and one.dim() == 1 for one in own["cuda"]), "random")


@dataclass(frozen=True)
class Content:
    """What a checkpoint holds under `lockstep`.

    `record`: the lines of record.jsonl that were written by then; `record_size`, `record_sha256`: bytes and digest of
    those behind the first; `best`: how good the best epoch is, by which metric; `sum_names`: what each of the ranks'
    sums is of, as `Objective.sums`; `prefix`: in front of the names of weights; an older version did not say.
    `ended`: a callback has ended training early.
    """

    identity: Mapping[str, Any]
    digest: str
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

    def require(self, plan: Plan) -> None:
        """A run of this plan can resume from it: a possible position, and the state beside it."""
        self.position.require(plan)
        require_mark(self.mark)
        check(isinstance(self.results, Mapping) and all(map(is_number, self.results.values())), "results")
        check(all(isinstance(name, str) for name in self.results), "results")
        best = self.best
        pair = isinstance(best, tuple | list) and len(best) == 2
        check(best is None or (pair and isinstance(best[0], str) and is_number(best[1])), "best")
        check(isinstance(self.best_yet, bool), "best_yet")
        check(self.prefix in ("", PREFIX), "prefix")
        check(isinstance(self.ended, bool), "ended")
        check(len(self.ranks) > 0, "ranks")
        for state in self.ranks:
            state.require(plan)

    @property
    def named_sums(self) -> str:
        """The names of the sums that it holds, in a line. Raises WrongForm if they are no names."""
        names = self.sum_names
        good = isinstance(names, list) and all(isinstance(name, str) and name.isprintable() for name in names)
        check(good, "sum_names")
        return ", ".join(names) or "none"

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
    def mark(self) -> Mark:
        """How far the record had come."""
        return Mark(self.record, self.record_size, self.record_sha256)

    @property
    def gradient_names(self) -> list[str]:
        """Of the parameters that have a gradient under way, on whichever rank."""
        return [*dict.fromkeys(name for state in self.ranks for name in state.gradients)]

    @property
    def samples(self) -> int:
        """That the epoch under way has trained on."""
        return int(self._over_ranks("sums", "epoch").sum(0)[SAMPLES])

    @property
    def _gradients(self) -> Mapping[str, Tensor]:
        """The means over ranks; what is the same on each, as shards leave it, is not rounded."""
        parts = {name: self._over_ranks("gradients", name) for name in self.gradient_names}
        return {name: own[0] if (own == own[0]).all() else own.mean(0) for name, own in parts.items()}

    def _over_ranks(self, kind: str, name: str) -> Tensor:
        """(ranks, …): zeros of a rank that has none, whose share of a small batch was empty."""
        parts = [getattr(state, kind).get(name) for state in self.ranks]
        like = next(part for part in parts if part is not None)
        return torch.stack([torch.zeros_like(like) if part is None else part for part in parts])


def require_mark(mark: Mark) -> None:
    """Raise WrongForm of a place in the record that cannot be."""
    check(is_count(mark.lines), "record")
    check(is_count(mark.size), "record_size")
    check(isinstance(mark.sha256, str), "record_sha256")


def prefixed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A net's parameters and buffers by the names that checkpoints give them."""
    return {PREFIX + name: tensor for name, tensor in state.items()}


def own_names(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """The other way: a checkpoint's parameters and buffers by the net's own names; a LightningModule's are saved so."""
    section = checkpoint.get(OWN, {})
    prefix = section.get("prefix", PREFIX) if isinstance(section, Mapping) else PREFIX
    return {name.removeprefix(prefix): tensor for name, tensor in checkpoint["state_dict"].items()}


def net_state(path: Path) -> dict[str, Tensor]:
    """The parameters and buffers in a checkpoint file, by the net's own names."""
    return own_names(load(path))
