"""What all loaders of a rank share: which slice of each global batch it takes, and what it tells of each batch."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class RankSlice:
    """Which slice of each global batch is taken: that of `rank` of `world_size`, divided among `virtual_ranks`."""

    rank: int
    world_size: int
    virtual_ranks: int = 1


@dataclass
class BatchShare:
    """What a rank has of a global batch.

    ids: of this process's samples, int64.
    samples: of the global batch.
    step_samples: of the optimizer step, over all batches and ranks; None if they are not known yet.
    is_dummy: whether the rank has no samples of the batch, and its batch is another rank's sample of weight 0.
    others: batches of virtual ranks above 0, each with its number of samples.
    count: samples of this rank, or of virtual rank 0; by default as many as there are ids.
    """

    ids: Tensor
    samples: int
    step_samples: int | None
    is_dummy: bool = False
    others: Sequence[tuple[Any, int]] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self.count = self.count or self.ids.shape[0]  # len of a tensor takes 1 µs


class RankLoader:
    """A loader of this rank's slice of each global batch. `shares` describe the batches that it has yielded, in turn.

    begin: the epoch and the batch at which training begins.
    accumulation: returns the batches of an optimizer step of an epoch.
    limit: how many batches of an epoch are used, or which fraction of them.
    fixed: whether all epochs have the same batches.
    `sampler` and `batch_sampler` are a DataLoader's names: Lightning calls `set_epoch` of these.
    """

    batch_sampler: Any = None

    def __init__(self, rank_slice: RankSlice, seed: int, training: bool) -> None:
        self.slice, self.seed, self.training = rank_slice, seed, training
        self.shares: deque[BatchShare] = deque()
        self.begin = (0, 0)
        self.accumulation: Callable[[int], int] = lambda _: 1
        self.limit: int | float = 1.0
        self.fixed = False
        self.sampler: Any = self
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the user's loader: `dataset`, `batch_size`, …"""
        if name == "loader" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.loader, name)

    @property
    def accumulate(self) -> int:
        """Return the batches of an optimizer step of the epoch."""
        return self.accumulation(self.epoch)

    def limited(self, batches: int) -> int:
        """Return how many of an epoch's batches are used."""
        return min(self.limit, batches) if isinstance(self.limit, int) else int(self.limit * batches)

    def share_of(self, ids: Tensor, step_samples: int | None) -> tuple[list[slice], BatchShare]:
        """Return which rows of a global batch are for this rank, or for each virtual rank.

        A rank without samples has none in an evaluation, and a dummy in training.
        """
        ranks = self.slice
        if self.training and ranks.virtual_ranks > 1:
            slices = [slice(rank, None, ranks.virtual_ranks) for rank in range(ranks.virtual_ranks)]
            return slices, BatchShare(ids, len(ids), step_samples, count=len(ids[slices[0]]))
        rows = slice(ranks.rank, None, ranks.world_size)
        if len(rank_ids := ids[rows]):
            return [rows], BatchShare(rank_ids, len(ids), step_samples)
        dummy = [slice(1)] if self.training and len(ids) else []
        return dummy, BatchShare(rank_ids, len(ids), step_samples, is_dummy=True)

    @property
    def first(self) -> int:
        """Return the batch at which the epoch begins: not 0 if training resumes within it."""
        return self.begin[1] if self.training and self.begin[0] == self.epoch else 0

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError
