"""Random numbers: the same where they must differ, or drawn where they disturb others.

Noise differs between one rank and several: only the generators, or the noise itself, can be judged.
"""

import random

import torch
from torch import Tensor
from torch.nn.functional import mse_loss
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from tests.silent_bugs.base import Batch, Points, Regression, draw_points, in_order, rank_and_world
from tests.silent_bugs.data import Draws, Sample

# 23 the same noise on every rank


class Noisy(Regression):
    """Learns from blurred inputs."""

    def noise(self, inputs: Tensor) -> Tensor:
        return torch.randn_like(inputs)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return mse_loss(self(batch[0] + 0.1 * self.noise(batch[0])), batch[1])


class SeededAlike(Noisy):
    def setup(self, stage: str) -> None:
        torch.manual_seed(1)


class CorrectSeededAlike(Noisy):
    def setup(self, stage: str) -> None:
        torch.manual_seed(1 + self.global_rank)


class ModuleGenerator(Noisy):
    """Draws from a generator of its own."""

    generator: torch.Generator

    def noise(self, inputs: Tensor) -> Tensor:
        return torch.randn(inputs.shape, generator=self.generator).to(inputs)


class GeneratorsAlike(ModuleGenerator):
    def on_train_start(self) -> None:
        self.generator = torch.Generator().manual_seed(1)


class CorrectGeneratorsAlike(ModuleGenerator):
    def on_train_start(self) -> None:
        self.generator = torch.Generator().manual_seed(1 + self.global_rank)


# 23 a dataset whose generator has the same seed on every rank


class Blurred(Dataset[Sample]):
    """Points with noise from a generator of the dataset."""

    def __init__(self, seed: int) -> None:
        self.points, self.generator = draw_points(32, seed=0), torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Sample:
        inputs, targets = (each[index] for each in self.points)
        return inputs + 0.1 * torch.randn(4, generator=self.generator), targets


class BlurredPoints(Points):
    """Shows the dataset's generator."""

    generator: torch.Generator

    def loader(self, seed: int) -> DataLoader[Sample]:
        dataset = Blurred(seed)
        self.generator = dataset.generator
        return DataLoader(dataset, self.batch_size, sampler=in_order(dataset))


class DatasetsAlike(BlurredPoints):
    def train_dataloader(self) -> DataLoader[Sample]:
        return self.loader(1)


class CorrectDatasetsAlike(BlurredPoints):
    def train_dataloader(self) -> DataLoader[Sample]:
        return self.loader(1 + rank_and_world()[0])


# 24 the same random numbers in every worker, or in every epoch


class DrawsOfCopy(Draws):
    """Draws from a generator of its own, which every worker copies anew in each epoch."""

    def __init__(self) -> None:
        self.random = random.Random(0)

    def noise(self) -> Tensor:
        return torch.tensor([self.random.gauss(0, 1) for _ in range(4)])


class DrawsOfWorker(Draws):
    """Draws from Python's generator, which torch seeds in each worker and epoch."""

    def noise(self) -> Tensor:
        return torch.tensor([random.gauss(0, 1) for _ in range(4)])


class CopiedGenerator(Points):
    def train_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(DrawsOfCopy(), self.batch_size, sampler=in_order(Draws()), num_workers=self.num_workers)


class CorrectCopiedGenerator(Points):
    def train_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(DrawsOfWorker(), self.batch_size, sampler=in_order(Draws()), num_workers=self.num_workers)


def seed_by_number(worker: int) -> None:
    torch.manual_seed(rank_and_world()[0] * 100 + worker)


def seed_by_epoch(worker: int) -> None:
    torch.manual_seed(torch.initial_seed() + rank_and_world()[0] * 100)


class SameEveryEpoch(Points):
    def train_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(
            Draws(),
            self.batch_size,
            sampler=in_order(Draws()),
            num_workers=self.num_workers,
            worker_init_fn=seed_by_number,
        )


class CorrectSameEveryEpoch(Points):
    def train_dataloader(self) -> DataLoader[Sample]:
        return DataLoader(
            Draws(),
            self.batch_size,
            sampler=in_order(Draws()),
            num_workers=self.num_workers,
            worker_init_fn=seed_by_epoch,
        )


# validation draws from the generator that training draws from


class DisturbedNoise(Noisy):
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("val_loss", mse_loss(self(batch[0] + torch.randn_like(batch[0])), batch[1]), sync_dist=True)


class CorrectDisturbedNoise(Noisy):
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        with torch.random.fork_rng():
            self.log("val_loss", mse_loss(self(batch[0] + torch.randn_like(batch[0])), batch[1]), sync_dist=True)


# noise of each rank on gradients that are reduced already


class NoisyGradient(Regression):
    def seed(self) -> int:
        raise NotImplementedError

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        generator = torch.Generator().manual_seed(self.seed())
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad += 0.01 * torch.randn(parameter.shape, generator=generator).to(parameter)


class GradientNoiseOfRank(NoisyGradient):
    def seed(self) -> int:
        return 2 * self.global_step + self.global_rank


class CorrectGradientNoiseOfRank(NoisyGradient):
    def seed(self) -> int:
        return 2 * self.global_step
