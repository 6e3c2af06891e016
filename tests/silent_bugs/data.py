"""Data and samplers: samples that repeat, go missing, or come in another order."""

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Sampler, get_worker_info

from tests.silent_bugs.base import Points, draw_points, in_order, rank_and_world

Sample = tuple[Tensor, ...]


# 1 set_epoch forgotten: Lightning calls it on the attribute `sampler` of a batch sampler


class Batches(Sampler[list[int]]):
    """Batches of the indices that a DistributedSampler shuffles for this rank."""

    def __init__(self, dataset: Dataset[Sample], batch_size: int) -> None:
        rank, world = rank_and_world()
        self.order: DistributedSampler[int] = DistributedSampler(dataset, world, rank)
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.order)
        while batch := [*islice(indices, self.batch_size)]:
            yield batch

    def __len__(self) -> int:
        return -(-len(self.order) // self.batch_size)


class BatchesOfEpoch(Batches):
    @property
    def sampler(self) -> DistributedSampler[int]:
        return self.order


class ForgottenEpoch(Points):
    def train_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(self.train, batch_sampler=Batches(self.train, self.batch_size))


class CorrectForgottenEpoch(Points):
    def train_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(self.train, batch_sampler=BatchesOfEpoch(self.train, self.batch_size))


# 2 the Trainer shuffles for ddp, although shuffle=False, or wraps a sampler of the user's and shuffles what it yields


class ShuffledAnyway(Points):
    def train_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(self.train, self.batch_size, shuffle=False)


class CorrectShuffledAnyway(Points):
    def train_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(self.train, self.batch_size, sampler=in_order(self.train))


class EasiestFirst(Sampler[int]):
    """A curriculum: samples by the size of their targets."""

    def __init__(self, dataset: Dataset[Sample], size: int) -> None:
        self.indices = sorted(range(size), key=lambda index: abs(float(dataset[index][1])))

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)


class EasiestFirstOfRank(DistributedSampler[int]):
    """The same, with every W-th sample for this rank: Lightning leaves a DistributedSampler as it is."""

    def __init__(self, dataset: Dataset[Sample], size: int) -> None:
        rank, world = rank_and_world()
        super().__init__(dataset, world, rank, shuffle=False)
        self.indices = [*EasiestFirst(dataset, size)][rank::world]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)


class ReplacedSampler(Points):
    def train_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(self.train, self.batch_size, sampler=EasiestFirst(self.train, 32))


class CorrectReplacedSampler(Points):
    def train_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(self.train, self.batch_size, sampler=EasiestFirstOfRank(self.train, 32))


# 2 a sampler that shuffles by the seed of its rank, and takes every W-th index of that


class Slices(DistributedSampler[int]):
    """Every W-th index of an order that is drawn anew in each epoch."""

    def seed_of_epoch(self) -> int:
        return self.seed + self.epoch

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed_of_epoch())
        order = torch.randperm(self.total_size, generator=generator).tolist()
        return iter(order[self.rank :: self.num_replicas])


class SlicesByRank(Slices):
    def seed_of_epoch(self) -> int:
        return self.seed + self.epoch + 100 * self.rank


class OrderOfEachRank(Points):
    def train_dataloader(self) -> DataLoader[Sample]:
        rank, world = rank_and_world()
        return DataLoader(self.train, self.batch_size, sampler=SlicesByRank(self.train, world, rank))


class CorrectOrderOfEachRank(Points):
    def train_dataloader(self) -> DataLoader[Sample]:
        rank, world = rank_and_world()
        return DataLoader(self.train, self.batch_size, sampler=Slices(self.train, world, rank))


# 3 an IterableDataset is read by every rank, and by every worker


class Stream(IterableDataset[Sample]):
    """All points, in every process that reads it."""

    def __init__(self, samples: int = 32) -> None:
        self.points = draw_points(samples, seed=0)

    def __iter__(self) -> Iterator[Sample]:
        return zip(*self.points, strict=True)


class StreamOfRank(Stream):
    def __iter__(self) -> Iterator[Sample]:
        rank, world = rank_and_world()
        return islice(super().__iter__(), rank, None, world)


class StreamOfWorker(StreamOfRank):
    def __iter__(self) -> Iterator[Sample]:
        worker = get_worker_info()
        return super().__iter__() if worker is None else islice(super().__iter__(), worker.id, None, worker.num_workers)


class StreamOnEveryRank(Points):
    def train_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(Stream(), self.batch_size)


class CorrectStreamOnEveryRank(Points):
    def train_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(StreamOfRank(), self.batch_size)


class StreamInEveryWorker(Points):
    def train_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(StreamOfRank(), self.batch_size, num_workers=self.num_workers)


class CorrectStreamInEveryWorker(Points):
    def train_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(StreamOfWorker(), self.batch_size, num_workers=self.num_workers)


# 4 a DistributedSampler repeats samples until ranks have equally many, and an evaluation counts them


class Unpadded(DistributedSampler[int]):
    """Every W-th sample; the last ranks may have one less."""

    def __init__(self, dataset: Dataset[Sample], size: int) -> None:
        rank, world = rank_and_world()
        super().__init__(dataset, world, rank, shuffle=False)
        self.indices = range(rank, size, world)

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)


class PaddedValidation(Points):
    def val_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(self.val, self.batch_size)


class CorrectPaddedValidation(Points):
    def val_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(self.val, self.batch_size, sampler=Unpadded(self.val, 15))


# 24 random numbers of workers: the cases are in random_numbers.py


class Draws(Dataset[Sample]):
    """Points drawn anew whenever they are read: none comes twice."""

    def __len__(self) -> int:
        return 32

    def noise(self) -> Tensor:
        return torch.randn(4)

    def __getitem__(self, index: int) -> Sample:
        inputs = 1 + 0.1 * self.noise()
        return inputs, inputs.sum(dim=0, keepdim=True)
