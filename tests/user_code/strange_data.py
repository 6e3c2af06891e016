"""Tensors from a function, and a Dataset that draws from all three generators for every sample."""

import os
import random
import signal
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset


def blobs(samples: int, classes: int = 3) -> tuple[Tensor, Tensor]:
    """(samples, 4) and classes."""
    generator = torch.Generator().manual_seed(1)
    targets = torch.randint(classes, (samples,), generator=generator)
    return torch.randn(samples, 4, generator=generator) + targets[:, None], targets


def drawn(samples: int) -> tuple[Tensor, Tensor]:
    """From all three generators."""
    values = torch.tensor(np.random.randn(samples, 3) + random.random(), dtype=torch.float32)
    return torch.cat([values, torch.randn(samples, 1)], dim=1), torch.arange(samples) % 2


def sine(samples: int) -> tuple[Tensor, Tensor]:
    """(samples, 1) and (samples,)."""
    x = torch.linspace(-3, 3, samples)[:, None]
    return x, x.sin()[:, 0]


class Noisy(Dataset[tuple[Tensor, int]]):
    classes = ("red", "green", "blue")

    def __init__(self, samples: int) -> None:
        self.inputs, self.targets = blobs(samples)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        noise = 0.1 * torch.randn(4) + 0.1 * random.random() + 0.1 * float(np.random.rand())
        return self.inputs[index] + noise, int(self.targets[index])


class Unlabelled(Noisy):
    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        raise KeyError("no label")


class Unreadable(Noisy):
    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index == 40:
            return self.label(index)
        return super().__getitem__(index)

    def label(self, index: int) -> tuple[Tensor, int]:
        try:
            raise KeyError(index)
        except KeyError as error:
            raise ValueError(f"no label at {index}") from error


def no_folder(samples: int) -> None:
    raise FileNotFoundError(f"no folder of {samples} images")


def killed(samples: int) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


class Endless(IterableDataset[tuple[Tensor, int]]):
    """No length, no index: pixels and classes as they come, until somebody has enough."""

    def __init__(self, samples: int, noise: int = 20) -> None:
        self.samples, self.noise = samples, noise

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        for index in range(self.samples):
            label = index * 7 % 3
            yield (torch.randint(0, self.noise, (4,)) + 60 * label).to(torch.uint8), label


def streamed(samples: int) -> dict[str, Dataset[tuple[Tensor, int]]]:
    """Three of them."""
    return {"train": Endless(samples), "val": Endless(13), "test": Endless(11)}
