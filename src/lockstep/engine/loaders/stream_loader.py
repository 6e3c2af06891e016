"""A rank's slices of the batches of an iterable, which every rank reads completely under the seed of the epoch."""

from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from lockstep.base.config_error import ConfigError
from lockstep.base.messages import gather_bytes
from lockstep.base.random_state import preserve_generators, random_state, restore_random_state, seed_by
from lockstep.base.streams import notice
from lockstep.base.structures import is_structure, map_leaves
from lockstep.engine.loaders import RankLoader, RankSlice, is_plain
from lockstep.engine.loaders.seeded import loader_options, start_workers
from lockstep.plan.step_plan import batch_count

END = object()


class StreamLoader(RankLoader):
    """The batches of an iterable: of an IterableDataset's samples, or complete batches, which are divided.

    has_samples: whether batches are made here of samples, by the loader's collate function.
    """

    def __init__(self, loader: Any, rank_slice: RankSlice, seed: int, training: bool, batch_size: int | None) -> None:
        super().__init__(loader, rank_slice, seed, training)
        self.is_checked = False
        self.has_samples = is_plain(loader) and loader.batch_size is not None
        self.global_batch_size = (batch_size or loader.batch_size) if self.has_samples else 0
        self.drop_last = self.has_samples and loader.drop_last

    def __len__(self) -> int:
        """Return the batches of an epoch; raise TypeError if the data has no length."""
        if not self.has_samples:
            return self.limited(len(self.loader))
        return self.limited(batch_count(len(self.loader.dataset), self.global_batch_size, self.drop_last))

    def __iter__(self) -> Iterator[Any]:
        self.shares.clear()
        number, end = -1, 0
        most = self.limit if isinstance(self.limit, int) else None if self.limit == 1 else len(self)
        for number, (batch, samples) in enumerate(islice(self._global_batches(), most)):
            ids = torch.arange(end, end + samples)
            end += samples
            if number < self.first:
                continue
            slices, share = self.share_of(ids, samples, samples if self.accumulate == 1 else None)
            if slices:
                first, *share.others = ((self._rows(batch, rows, len(ids[rows])), len(ids[rows])) for rows in slices)
                if self.has_samples:
                    self.count_arrived(share, first[0])
                self.shares.append(share)
                yield first[0]
        with suppress(TypeError, NotImplementedError):  # without a length
            if self.training and self.epoch == self.slice.rank == 0 and number + 1 < len(self):
                length = f"the training loader has a length of {len(self)} batches, and {number + 1} come"
                notice(f"data: {length}: no epoch gets to its last batch, and to a validation")

    def _rows(self, batch: Any, rows: slice, samples: int) -> Any:
        """Return some samples of a global batch; None for no samples."""
        if samples == 0:
            return None
        return self.loader.collate_fn(batch[rows]) if self.has_samples else slice_batch(batch, rows)

    def _global_batches(self) -> Iterator[tuple[Any, int]]:
        """Yield each global batch and the number of its samples, drawn under the seed of the epoch."""
        with preserve_generators():
            seed_by(self.seed, self.sampled_epoch, -1)
            batches = self._start()
            state = random_state()
        while True:
            with preserve_generators():
                restore_random_state(state)
                batch: Any = next(batches, END)
                state = random_state()
            self._require_equal(batch)
            if batch is END:
                return
            yield batch, len(batch) if self.has_samples else samples_in(batch)

    def _require_equal(self, batch: Any) -> None:
        """Raise if the first batch differs between ranks."""
        if self.is_checked or not dist.is_initialized():
            return
        self.is_checked = True
        if len({*gather_bytes(b"" if batch is END else fingerprint(batch), to_all=True)}) > 1:
            raise ConfigError(
                "data: ranks read different samples from it, but each rank has to read all samples and keeps its "
                "slice; write one that reads the same on every rank and draws from the process's generators (for "
                "webdataset nodesplitter=None, shuffle(…, rng=random))."
            )

    def _start(self) -> Iterator[Any]:
        if not is_plain(self.loader):
            if isinstance(generator := getattr(self.loader, "generator", None), torch.Generator):
                generator.manual_seed(self.seed + self.sampled_epoch)
            return iter(self.loader)
        options = loader_options(self.loader)
        options["generator"] = torch.Generator().manual_seed(self.seed + self.sampled_epoch)
        if self.has_samples:
            options |= {"batch_size": self.global_batch_size, "drop_last": self.drop_last, "collate_fn": list}
        else:
            options |= {"batch_size": None, "collate_fn": self.loader.collate_fn}
            if not isinstance(self.loader.dataset, IterableDataset):
                options["sampler"] = self.loader.sampler
        return start_workers(DataLoader(self.loader.dataset, **options))


def samples_in(batch: Any) -> int:
    """Return the samples of a batch: the length of its first tensor or array, as Lightning counts them."""
    arrays: list[Any] = []
    map_leaves(arrays.append, _is_array, batch)
    if not arrays:
        raise ConfigError(
            f"data: its batches are of type {type(batch).__name__} without a tensor, so their samples cannot be "
            "counted; write a loader of tensors, or a Dataset."
        )
    return len(arrays[0]) if arrays[0].ndim else 1


def slice_batch(batch: Any, rows: slice) -> Any:
    """Return some samples of a batch; values that do not belong to single samples stay."""
    if rows == slice(0, None, 1):
        return batch
    samples = samples_in(batch)

    def has_samples(value: Any) -> bool:
        """Whether it is an array, or a list such as texts, with an item for each sample."""
        if _is_array(value):
            return value.ndim > 0 and len(value) == samples
        is_list = isinstance(value, list | tuple) and len(value) == samples
        return is_list and not any(_is_array(item) or is_structure(item) for item in value)

    return map_leaves(lambda value: value[rows], has_samples, batch)


def fingerprint(batch: Any) -> bytes:
    """Return a hash of a batch's values, equal for equal samples in any process."""
    digest = blake2b(digest_size=16)

    def update(leaf: Any) -> None:
        if isinstance(leaf, Tensor):
            leaf = leaf.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
        is_plain_value = isinstance(leaf, np.generic | str | bytes | int | float)
        digest.update(leaf.tobytes() if isinstance(leaf, np.ndarray) else repr(leaf if is_plain_value else "").encode())

    map_leaves(update, lambda value: not is_structure(value), batch)
    return digest.digest()


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray)
