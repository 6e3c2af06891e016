"""Data: any map-style Dataset of (input, target)."""

import torch
from torch import Tensor
from torch.utils.data import Dataset


class Rings(Dataset[tuple[Tensor, int]]):
    """Points (2,) on two circles, moved a little each time they are read."""

    classes = ("inner", "outer")

    def __init__(self, samples: int, blur: float = 0.1) -> None:
        self.blur, self.labels = blur, torch.arange(samples) % 2
        angle = torch.linspace(0, 60, samples)
        self.points = torch.stack([angle.cos(), angle.sin()], dim=1) * (1 + self.labels[:, None])

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.points[index] + self.blur * torch.randn(2), int(self.labels[index])
