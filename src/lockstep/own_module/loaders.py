"""A user's DataLoader in one rank's shares: the same samples at the same step for any number of ranks and workers.

Dataset, collate function, workers and memory options are theirs. A sample of a map-style data set is made under random
numbers of its own; an iterable is read by every rank, which keeps its share of each global batch.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from lockstep.config_error import ConfigError
from lockstep.data.seeded import Place, Seeded, as_made, seed_sample, workers_context
from lockstep.own_module.batches import GlobalBatches
from lockstep.own_module.shares import fingerprint, part_of, samples_in
from lockstep.parallel import all_gather_bytes
from lockstep.random_state import generators_kept, random_state, restore_random_state

END = object()
KEPT = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "prefetch_factor", "multiprocessing_context")
"""Of a user's DataLoader, beside its data set and its collate function."""


@dataclass(frozen=True)
class Share:
    """Whose part of each global batch: rank of world_size, which may be so many virtual ranks."""

    rank: int
    world_size: int
    virtual_ranks: int = 1


@dataclass
class Taken:
    """What a rank has of a global batch. `window`: samples of the optimizer step; None where nobody knows it yet.

    `parts` are of virtual ranks above 0, with their samples; stand_in: of a rank without samples, to be weighed by 0.
    """

    ids: Tensor
    samples: int
    window: int | None
    stand_in: bool = False
    parts: Sequence[tuple[Any, int]] = field(default_factory=list)
    own: int = 0

    def __post_init__(self) -> None:
        self.own = self.own or len(self.ids)


class RankLoader:
    """Iterated like the loader it stands for. `taken` says of each batch that it has yielded, in turn, what it is of.

    `sampler` and `batch_sampler` are a DataLoader's names: Lightning calls `set_epoch` of these.
    """

    batch_sampler: Any = None

    def __init__(self, share: Share, seed: int, training: bool) -> None:
        self.share, self.seed, self.training = share, seed, training
        self.taken: deque[Taken] = deque()
        self.begin = (0, 0)
        self.accumulation: Callable[[int], int] = lambda _: 1
        self.limit: int | float = 1.0
        self.fixed = False
        self.sampler: Any = self
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getattr__(self, name: str) -> Any:
        """What else a module asks of its loader is the user's own: `dataset`, `batch_size`, …"""
        if name == "loader" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.loader, name)

    @property
    def accumulate(self) -> int:
        """Batches of an optimizer step of the epoch."""
        return self.accumulation(self.epoch)

    def kept(self, batches: int) -> int:
        """Of so many batches of an epoch, those that are used: a number of them, or a share."""
        return min(self.limit, batches) if isinstance(self.limit, int) else int(self.limit * batches)

    @property
    def first(self) -> int:
        """The batch at which the epoch begins: not the first one where training resumes within it."""
        return self.begin[1] if self.training and self.begin[0] == self.epoch else 0

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError


class MapLoader(RankLoader):
    """Of a map-style data set."""

    def __init__(
        self, loader: "DataLoader[Any]", share: Share, seed: int, training: bool, batch_size: int | None
    ) -> None:
        super().__init__(share, seed, training)
        self.loader = loader
        self.batches = GlobalBatches(loader, seed, batch_size)
        self.lists: Sequence[Tensor] = []
        self.source: Any = None

    def __len__(self) -> int:
        """Batches of a whole epoch, in which this rank has samples if it is an evaluation.

        Lightning takes no loader of none on one rank alone: 1 is said, and nothing comes.
        """
        batches = self._epoch()
        return len(batches) if self.training else max(1, sum(len(ids) > self.share.rank for ids in batches))

    @property
    def least(self) -> int:
        """Samples of the smallest batch; of none, as many as there are ranks."""
        return min((len(ids) for ids in self._epoch()), default=self.share.world_size)

    def _epoch(self) -> Sequence[Tensor]:
        self.batches.fixed = self.fixed
        self.batches.set_epoch(self.epoch)
        batches = self.batches.batches()
        return batches[: self.kept(len(batches))]

    def __iter__(self) -> Iterator[Any]:
        batches = self._epoch()
        plans = [self._plan(batches, number) for number in range(self.first, len(batches))]
        plans = [own for own in plans if own[0]]
        parts = 1 if not plans else len(plans[0][0])
        made = self._made([ids for shares, _ in plans for ids in shares])
        for shares, taken in plans:
            first, *rest = islice(made, parts)
            taken.parts = [(part, len(ids)) for part, ids in zip(rest, shares[1:], strict=True)]
            self.taken.append(taken)
            yield first

    def _plan(self, batches: Sequence[Tensor], number: int) -> tuple[list[Tensor], Taken]:
        """The ids of this rank's share, or of each virtual rank's; none of an evaluation where it has no samples."""
        ids, share = batches[number], self.share
        begin = number - number % self.accumulate
        window = sum(len(own) for own in batches[begin : begin + self.accumulate])
        if self.training and share.virtual_ranks > 1:
            shares = [ids[rank :: share.virtual_ranks] for rank in range(min(share.virtual_ranks, len(ids)))]
            shares += [ids[:0]] * (share.virtual_ranks - len(shares))
            return shares, Taken(ids, len(ids), window, own=len(shares[0]))
        own = ids[share.rank :: share.world_size]
        if len(own):
            return [own], Taken(own, len(ids), window)
        if not self.training or len(ids) == 0:
            return [], Taken(own, len(ids), window)
        return [ids[:1]], Taken(own, len(ids), window, stand_in=True)

    def _made(self, lists: Sequence[Tensor]) -> Iterator[Any]:
        """The batches of these ids; None of no ids."""
        tensors = self._tensors()
        if tensors is not None:
            return (None if len(ids) == 0 else [tensor.index_select(0, ids) for tensor in tensors] for ids in lists)
        self.lists = lists
        return self._from_samples()

    def _tensors(self) -> Sequence[Tensor] | None:
        """Where samples are rows of tensors, no worker is faster than an index, and nothing random happens."""
        own = self.loader.dataset
        if type(own) is not TensorDataset or self.loader.collate_fn is not default_collate:
            return None
        return own.tensors

    def _from_samples(self) -> Iterator[Any]:
        if self.source is None:
            self.source = DataLoader(
                Seeded(self.loader.dataset, self.loader.collate_fn, self.seed),
                batch_sampler=_Lists(self),
                collate_fn=as_made,
                generator=torch.Generator(),  # the workers' seed would be drawn from the rank's own generator
                persistent_workers=self.loader.persistent_workers,
                **_kept(self.loader),
            )
        return iter(self.source)


class StreamLoader(RankLoader):
    """Of an iterable: an IterableDataset's samples, or batches that are made already and divided as they come."""

    def __init__(self, loader: Any, share: Share, seed: int, training: bool, batch_size: int | None) -> None:
        super().__init__(share, seed, training)
        self.loader = loader
        self.alike = False
        self.samples = isinstance(loader, DataLoader) and loader.batch_size is not None
        self.batch_size = (batch_size or loader.batch_size) if self.samples else None

    def __len__(self) -> int:
        """Where the data has a length; raises TypeError where it has none."""
        return self.kept(len(self.loader))

    def __iter__(self) -> Iterator[Any]:
        position = 0
        most = self.limit if isinstance(self.limit, int) else None if self.limit == 1 else len(self)
        for number, (ready, samples) in enumerate(islice(self._global(), most)):
            ids = torch.arange(position, position + samples)
            position += samples
            if number < self.first:
                continue
            window = samples if self.accumulate == 1 else None
            share = self.share
            if self.training and share.virtual_ranks > 1:
                shares = [ids[rank :: share.virtual_ranks] for rank in range(share.virtual_ranks)]
                made = [self._part(ready, rank, share.virtual_ranks, len(own)) for rank, own in enumerate(shares)]
                parts = [(part, len(own)) for part, own in zip(made[1:], shares[1:], strict=True)]
                self.taken.append(Taken(ids, samples, window, parts=parts, own=len(shares[0])))
                yield made[0]
                continue
            own = ids[share.rank :: share.world_size]
            if len(own):
                self.taken.append(Taken(own, samples, window))
                yield self._part(ready, share.rank, share.world_size, len(own))
            elif self.training and samples:
                self.taken.append(Taken(own, samples, window, stand_in=True))
                yield self._part(ready, 0, samples, 1)

    def _part(self, ready: Any, rank: int, ranks: int, samples: int) -> Any:
        if samples == 0:
            return None
        return self.loader.collate_fn(ready[rank::ranks]) if self.samples else part_of(ready, rank, ranks)

    def first_of_all(self) -> bytes:
        """The fingerprint of the first global batch, read without workers."""
        return next((fingerprint(ready) for ready, _ in self._global(workers=False)), b"")

    def _global(self, workers: bool = True) -> Iterator[tuple[Any, int]]:
        """Global batches, and their samples; drawn under random numbers of the epoch.

        Raises:
            ConfigError: ranks read others.
        """
        with generators_kept():
            seed_sample(self.seed, self.epoch if self.training else 0, -1)
            source = iter(self._source(workers))
            state = random_state([])
        while True:
            with generators_kept():
                restore_random_state(state, [])
                ready: Any = next(source, END)
                state = random_state([])
            self._require_alike(ready)
            if ready is END:
                return
            yield ready, samples_in(ready) if not self.samples else len(ready)

    def _require_alike(self, ready: Any) -> None:
        """Of the first batch: each rank reads the whole stream, and keeps its share of it."""
        if self.alike or not dist.is_initialized():
            return
        self.alike = len({*all_gather_bytes(b"" if ready is END else fingerprint(ready))}) == 1
        if not self.alike:
            raise ConfigError(
                "data: ranks read other samples of it, and here each reads all and keeps its own share; write one that "
                "reads the same on every rank, and draws from the process's generators (of webdataset "
                "nodesplitter=None, shuffle(…, rng=random))."
            )

    def _source(self, workers: bool) -> Any:
        if not isinstance(self.loader, DataLoader):
            return self.loader
        generator = torch.Generator().manual_seed(self.seed + (self.epoch if self.training else 0))
        options = {**(_kept(self.loader) if workers else {}), "generator": generator}
        if self.samples:
            options |= {"batch_size": self.batch_size, "drop_last": self.loader.drop_last, "collate_fn": list}
        else:
            options |= {"batch_size": None, "collate_fn": self.loader.collate_fn}
            if not isinstance(self.loader.dataset, IterableDataset):
                options["sampler"] = self.loader.sampler
        return DataLoader(self.loader.dataset, **options)


def rank_loader(loader: Any, share: Share, seed: int, training: bool, batch_size: int | None = None) -> RankLoader:
    """The shares of any loader."""
    batched = isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)
    if batched and loader.batch_sampler is not None:
        return MapLoader(loader, share, seed, training, batch_size)
    return StreamLoader(loader, share, seed, training, batch_size)


class _Lists:
    """A batch sampler of the lists that are due in this epoch, as places."""

    def __init__(self, owner: MapLoader) -> None:
        self.owner = owner

    def __iter__(self) -> Iterator[list[Place]]:
        epoch = self.owner.epoch if self.owner.training else 0  # an evaluation is the same each time
        return ([(epoch, sample) for sample in ids.tolist()] for ids in self.owner.lists)


def _kept(loader: "DataLoader[Any]") -> dict[str, Any]:
    options = {name: getattr(loader, name) for name in KEPT}
    if not loader.num_workers:
        options["multiprocessing_context"] = None
    elif options["multiprocessing_context"] is None:
        options["multiprocessing_context"] = workers_context()
    return options
