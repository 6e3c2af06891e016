"""LightningDataModules and data sets as people write them, none of which knows of Lockstep."""

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, random_split


class Blobs(Dataset[dict[str, Any]]):
    """Dictionaries, with noise that is drawn anew each time."""

    def __init__(self, samples: int, noise: float = 0.1) -> None:
        generator = torch.Generator().manual_seed(3)
        self.y = torch.arange(samples) % 3
        self.x = torch.randn(samples, 4, generator=generator) + self.y[:, None]
        self.noise = noise

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": self.x[index] + self.noise * torch.randn(4), "y": int(self.y[index])}


class BlobsData(pl.LightningDataModule):
    """A split that is drawn in setup; ragged batches in training, and in each evaluation."""

    def __init__(self, batch_size: int = 8, samples: int = 62, workers: int = 0, noise: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage: str | None = None) -> None:
        samples = Blobs(self.hparams["samples"], self.hparams["noise"])
        self.train, self.val, self.test = random_split(samples, [len(samples) - 24, 13, 11])

    def _loader(self, dataset: Any, shuffle: bool = False) -> DataLoader[Any]:
        options = {"num_workers": self.hparams["workers"], "persistent_workers": self.hparams["workers"] > 0}
        return DataLoader(dataset, batch_size=self.hparams["batch_size"], shuffle=shuffle, **options)

    def train_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.train, shuffle=True)

    def val_dataloader(self) -> list[DataLoader[Any]]:
        return [self._loader(self.val), self._loader(self.test)]

    def test_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.test)


class SizesData(BlobsData):
    """Other sizes in validation than in training, which drops the last batch; asks the trainer for the world."""

    def setup(self, stage: str | None = None) -> None:
        super().setup(stage)
        assert self.trainer is not None
        self.size = 12 // self.trainer.world_size

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.train, batch_size=8, shuffle=True, drop_last=True)

    def val_dataloader(self) -> list[DataLoader[Any]]:
        return [DataLoader(Blobs(14), batch_size=self.size)]


class Streamed(IterableDataset[tuple[Tensor, Tensor]]):
    """No length, no index; noise as it comes."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for index in range(self.samples):
            x = torch.full((4,), float(index % 5)) + 0.1 * torch.randn(4)
            yield x, x.sum()[None]


class StreamData(pl.LightningDataModule):
    def __init__(self, samples: int = 30, batch_size: int = 8) -> None:
        super().__init__()
        self.samples, self.batch_size = samples, batch_size

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(Streamed(self.samples), batch_size=self.batch_size)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(Streamed(12), batch_size=self.batch_size)


class ByClock(IterableDataset[tuple[Tensor, Tensor]]):
    """In another order each time, and in each process."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = random.Random(time.time_ns() + os.getpid())
        for number in order.sample(range(30), 30):
            x = torch.full((4,), float(number))
            yield x, x.sum()[None]


class ByClockData(StreamData):
    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(ByClock(), batch_size=self.batch_size)


@dataclass
class Example:
    """A batch of a class of their own."""

    x: Tensor
    y: Tensor


def collate(samples: Any) -> Example:
    x, y = zip(*samples, strict=True)
    return Example(torch.stack(x), torch.stack(y))


class UnevenData(pl.LightningDataModule):
    """Batches of sizes that no number of ranks shares equally, one of them a single sample."""

    batches = ([0, 1, 2, 3, 4], [5], [6, 7, 8], [9, 10], [11, 12, 13, 14, 15])

    def prepare(self, batches: Any) -> DataLoader[Any]:
        x = torch.linspace(-1, 1, 64).reshape(16, 4)
        return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_sampler=batches, collate_fn=collate)

    def train_dataloader(self) -> DataLoader[Any]:
        return self.prepare(self.batches)

    def val_dataloader(self) -> DataLoader[Any]:
        return self.prepare(self.batches[:3])


class PairsData(pl.LightningDataModule):
    """Pairs that a plain net takes, ragged; classes are found in the tensors."""

    def __init__(self, samples: int = 61, batch_size: int = 8, loaders: int = 1) -> None:
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage: str | None = None) -> None:
        generator = torch.Generator().manual_seed(3)
        y = torch.arange(self.hparams["samples"] + 24) % 3
        x = torch.randn(len(y), 4, generator=generator) + y[:, None]
        self.train, self.val, self.test = random_split(TensorDataset(x, y), [self.hparams["samples"], 13, 11])

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.train, batch_size=self.hparams["batch_size"], shuffle=True)

    def val_dataloader(self) -> Any:
        loaders = [DataLoader(self.val, batch_size=5) for _ in range(self.hparams["loaders"])]
        return loaders[0] if len(loaders) == 1 else loaders

    def test_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.test, batch_size=5)


class Doubling(DataLoader[Any]):
    """Augments by an `__iter__` of its own."""

    def __iter__(self) -> Any:
        for x, y in super().__iter__():
            yield 2 * x, y


class DoubledData(pl.LightningDataModule):
    """The same batches by a loader that doubles (`by=loader`), by doubled data, or neither."""

    def __init__(self, by: str) -> None:
        super().__init__()
        self.kind: Any = Doubling if by == "loader" else DataLoader
        self.factor = 2.0 if by == "data" else 1.0

    def loader(self, samples: int, seed: int) -> DataLoader[Any]:
        x = torch.randn(samples, 4, generator=torch.Generator().manual_seed(seed))
        return self.kind(TensorDataset(self.factor * x, x.sum(1, keepdim=True).tanh()), batch_size=8)  # type: ignore[no-any-return]

    def train_dataloader(self) -> DataLoader[Any]:
        return self.loader(45, 1)

    def val_dataloader(self) -> DataLoader[Any]:
        return self.loader(21, 2)
