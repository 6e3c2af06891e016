"""The base of the loaders of a rank: its slice of each global batch, and a description of each batch."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from lockstep.base.structures import samples_left


@dataclass(frozen=True)
class RankSlice:
    """The slice of each global batch for `rank` of `world_size` data ranks, divided among `virtual_ranks`."""

    rank: int
    world_size: int
    virtual_ranks: int = 1


@dataclass
class BatchShare:
    """A rank's share of a global batch.

    ids: of this process's samples, int64.
    samples: of the global batch.
    step_samples: of the optimizer step, over all batches and ranks; None if they are not known yet.
    is_dummy: whether the rank has no samples of the batch, and its batch is another rank's sample of weight 0.
    others: batches of virtual ranks above 0, each with its number of samples.
    count: samples of this rank, or of virtual rank 0; none of a dummy batch.
    dropped: samples of this process that the collate function has left out.
    """

    ids: Tensor
    samples: int
    step_samples: int | None
    is_dummy: bool = False
    others: Sequence[tuple[Any, int]] = field(default_factory=list)
    count: int = 0
    dropped: int = 0


class RankLoader:
    """A loader of this rank's slice of each global batch. `shares` describe the yielded batches, in their order.

    loader: the user's, whose attributes (`dataset`, `batch_size`, …) this one has too.
    begin: the epoch and the batch at which training begins.
    accumulate: the batches of an optimizer step.
    limit: the number of batches of an epoch that are used, or their fraction.
    fixed: whether all epochs have the same batches.
    regular: whether all batches but the last have `global_batch_size` samples: the plan's, or else the loader's.
    global_batch_size: 0 if batches have different sizes.
    evaluation_batch: samples that a batch of an evaluation has at least: smaller ones of the loader are joined.
    drop_last: whether a last batch that is not full is left out.
    pads_ranks: whether a rank without samples of a batch gets a dummy one: where all ranks meet within a step.
    `sampler` and `batch_sampler` are a DataLoader's names: Lightning calls `set_epoch` of these.
    """

    batch_sampler: Any = None
    accumulate = 1
    begin = (0, 0)
    limit: int | float = 1.0
    fixed = regular = drop_last = False
    global_batch_size = 0
    evaluation_batch = 1
    epoch = 0

    def __init__(self, loader: Any, rank_slice: RankSlice, seed: int, training: bool) -> None:
        self.loader, self.slice, self.seed, self.training = loader, rank_slice, seed, training
        self.pads_ranks = training
        self.shares: deque[BatchShare] = deque()
        self.sampler: Any = self

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getattr__(self, name: str) -> Any:
        if name == "loader" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.loader, name)

    @property
    def samples(self) -> int:
        """Return the samples of the first epoch, with those that `drop_last` drops; 0 if unknown."""
        return 0

    def limited(self, batches: int) -> int:
        """Return how many of an epoch's batches are used."""
        return min(self.limit, batches) if isinstance(self.limit, int) else int(self.limit * batches)

    def share_of(self, ids: Tensor, samples: int, step_samples: int | None) -> tuple[list[slice], BatchShare]:
        """Return the rows of a global batch for this rank, or for each virtual rank, and a description of them.

        A rank without samples has another rank's sample if `pads_ranks`, else no rows.
        """
        rank, world_size, virtual_ranks = self.slice.rank, self.slice.world_size, self.slice.virtual_ranks
        if virtual_ranks > 1:
            slices = [slice(index, None, virtual_ranks) for index in range(virtual_ranks)]
            return slices, BatchShare(ids, samples, step_samples, count=-(-samples // virtual_ranks))
        if rank >= samples:
            dummy = [slice(1)] if self.pads_ranks and samples else []
            return dummy, BatchShare(ids[:0], samples, step_samples, is_dummy=True)
        rows = slice(rank, None, world_size)
        return [rows], BatchShare(ids[rows], samples, step_samples, count=-((rank - samples) // world_size))

    def count_arrived(self, share: BatchShare, batch: Any) -> None:
        """Count the samples that the collate function has left in the batch of a share, and in those of virtual ranks.

        Without other ranks and batches in the step, the gradient is that of these samples.
        """
        if self.loader.collate_fn is default_collate:
            return
        counts, batches = [share.count, *(n for _, n in share.others)], [batch, *(each for each, _ in share.others)]
        share.count, *left = map(samples_left, batches, counts)
        share.others = [*zip(batches[1:], left, strict=True)]
        share.dropped = sum(counts) - share.count - sum(left)
        if share.dropped and self.slice.world_size == 1:
            share.step_samples = share.samples - share.dropped if share.step_samples == share.samples else None
            share.samples -= share.dropped

    @property
    def first(self) -> int:
        """Return the batch at which the epoch begins: not 0 if training resumes within it."""
        return self.begin[1] if self.training and self.begin[0] == self.epoch else 0

    @property
    def sampled_epoch(self) -> int:
        """Return the epoch under which samples are drawn: an evaluation is always the same."""
        return self.epoch if self.training and not self.fixed else 0


def is_plain(loader: Any) -> bool:
    """Whether a loader yields the batches of a DataLoader; a derived class with an iterator may change them."""
    kind, iterators = type(loader), ("__iter__", "_get_iterator")  # torch_geometric overrides the second
    return isinstance(loader, DataLoader) and all(getattr(kind, it) is getattr(DataLoader, it) for it in iterators)
